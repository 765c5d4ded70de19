//! The calls of a list of expressions: each becomes a column, with the rows that need it.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::functions_nested::inner_product::inner_product_udf;
use datafusion::logical_expr::expr::{Case, Cast};
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::{Lift, has_call};
use crate::options::{self, CallOptions};
use crate::program::{AiCall, CallInput, Conjunct, Program, Slots, needed};
use crate::prompt::PromptSource;
use crate::{function, prompt};

/// Calls taken out of expressions.
pub(super) struct Calls<'a> {
    lift: &'a Lift,
    calls: Vec<AiCall>,
}

impl<'a> Calls<'a> {
    pub(super) fn new(lift: &'a Lift) -> Self {
        Self { lift, calls: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes the calls out of an expression that is looked at for every row.
    pub(super) fn lift(&mut self, expr: Expr) -> Result<Expr> {
        self.rewrite(expr, None)
    }

    /// Takes the calls out of an expression that is looked at where `guard` is true.
    pub(super) fn lift_where(&mut self, expr: Expr, guard: &Expr) -> Result<Expr> {
        self.rewrite(expr, Some(guard))
    }

    fn rewrite(&mut self, expr: Expr, guard: Option<&Expr>) -> Result<Expr> {
        if !has_call(&expr) {
            return Ok(expr);
        }
        if let Some((function, arguments)) = function::called(&expr) {
            let written = expr.human_display().to_string();
            return self.call(function, arguments.to_vec(), written, guard);
        }
        match expr {
            Expr::Case(case) => self.case(case, guard),
            Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
                self.chain(expr, op, guard)
            }
            Expr::ScalarFunction(mut call) if call.func.name() == "coalesce" => {
                let mut guard = guard.cloned();
                for argument in &mut call.args {
                    let done = self.rewrite(std::mem::take(argument), guard.as_ref())?;
                    guard = conjunction(guard.into_iter().chain([done.clone().is_null()]));
                    *argument = done;
                }
                Ok(Expr::ScalarFunction(call))
            }
            other => other
                .map_children(|child| Ok(Transformed::yes(self.rewrite(child, guard)?)))
                .map(|transformed| transformed.data),
        }
    }

    fn call(
        &mut self,
        function: function::Function,
        arguments: Vec<Expr>,
        written: String,
        guard: Option<&Expr>,
    ) -> Result<Expr> {
        if function.is_similarity() {
            return self.similarity(arguments, guard);
        }
        let (mut values, options) = CallOptions::take(function.name, &arguments)?;
        function::check(function, values.len())?;
        let first = values.remove(0);
        let input = match prompt::arguments(&first) {
            // An embedding model reads a text: it is written as any other value.
            _ if function.is_embedding() => CallInput::Value(self.rewrite(first, guard)?),
            Some([text, places @ ..]) => {
                let Some(text) = options::text(text) else {
                    return plan_err!("prompt: its text must be a literal, with places {{0}}, {{1}}, ..");
                };
                let text = PromptSource::of(text, places)?;
                let places = places.iter().map(|value| self.rewrite(value.clone(), guard));
                CallInput::Prompt(text, places.collect::<Result<_>>()?)
            }
            _ => CallInput::Value(self.rewrite(first, guard)?),
        };
        let rest = values.into_iter().map(|value| self.rewrite(value, guard)).collect::<Result<Vec<_>>>()?;
        self.add(function, input, rest, options, written, guard.cloned())
    }

    /// The similarity of two texts is the inner product of their vectors, which have length 1.
    fn similarity(&mut self, arguments: Vec<Expr>, guard: Option<&Expr>) -> Result<Expr> {
        let (options, texts): (Vec<Expr>, Vec<Expr>) = arguments.into_iter().partition(options::is_option);
        let [one, other] = match <[Expr; 2]>::try_from(texts) {
            Ok(texts) => texts,
            Err(texts) => return plan_err!("ai_similarity: takes two texts, got {} arguments", texts.len()),
        };
        let function = function::Function::embedding();
        let mut vector = |text: Expr| -> Result<Expr> {
            let written = format!("{}({})", function.name, text.human_display());
            let arguments = std::iter::once(text).chain(options.iter().cloned()).collect();
            let vector = self.call(function, arguments, written, guard)?;
            Ok(Expr::Cast(Cast::new(Box::new(vector), list_of(DataType::Float64))))
        };
        let vectors = vec![vector(one)?, vector(other)?];
        Ok(inner_product_udf().call(vectors))
    }

    /// The call that ranks rows by their texts. Its arguments are lifted already.
    pub(super) fn rank(
        &mut self,
        function: function::Function,
        (text, criterion): (Expr, Expr),
        options: CallOptions,
        written: String,
    ) -> Result<Expr> {
        if !criterion.column_refs().is_empty() {
            return plan_err!("ai_rank: the criterion must be the same for all rows");
        }
        self.add(function, CallInput::Value(text), vec![criterion], options, written, None)
    }

    /// A call over the list of a group's texts.
    pub(super) fn over(
        &mut self,
        function: function::Function,
        list: Expr,
        arguments: Vec<Expr>,
    ) -> Result<Expr> {
        let (rest, options) = CallOptions::take(function.name, &arguments)?;
        let written: Vec<String> = rest.iter().map(|expr| expr.human_display().to_string()).collect();
        let written = format!("{}({})", function.name, written.join(", "));
        self.add(function, CallInput::Value(list), rest, options, written, None)
    }

    /// A call, or the same call made already: it is needed where either is.
    fn add(
        &mut self,
        function: function::Function,
        input: CallInput,
        rest: Vec<Expr>,
        options: CallOptions,
        written: String,
        guard: Option<Expr>,
    ) -> Result<Expr> {
        let read: Vec<&Expr> = match &input {
            CallInput::Value(value) => vec![value],
            CallInput::Prompt(_, values) => values.iter().collect(),
        };
        let level =
            read.into_iter().chain(&rest).chain(&guard).map(|expr| self.level(expr)).max().unwrap_or(0);
        let same = self.calls.iter().position(|call| {
            (call.function, &call.input, &call.rest, &call.options) == (function, &input, &rest, &options)
        });
        // A guard that reads a later call's answer cannot be an earlier one's. The call is made again then: equal
        // prompts run once all the same.
        let is_known = |place: usize| {
            let later: Vec<&str> = self.calls[place..].iter().map(|call| call.name.as_str()).collect();
            let read = guard.iter().flat_map(Expr::column_refs);
            read.filter(|column| column.relation.is_none()).all(|column| !later.contains(&&*column.name))
        };
        let same = same.filter(|place| is_known(*place));
        if let Some(call) = same.and_then(|place| self.calls.get_mut(place))
            && (call.guard == guard || call.guard.is_none() || call.level == level)
        {
            call.guard = match (call.guard.take(), guard) {
                (Some(one), Some(other)) if one != other => disjunction([one, other]),
                (Some(one), Some(_)) => Some(one),
                _ => None,
            };
            return Ok(Expr::Column(Column::new_unqualified(&call.name)));
        }
        let name = self.lift.name();
        let column = Expr::Column(Column::new_unqualified(&name));
        self.calls.push(AiCall { function, input, rest, options, guard, name, written, level });
        Ok(column)
    }

    /// One above the calls whose answers an expression reads.
    fn level(&self, expr: &Expr) -> usize {
        let columns = expr.column_refs();
        let read = self.calls.iter().filter(|call| {
            columns.iter().any(|column| column.relation.is_none() && column.name == call.name)
        });
        read.map(|call| call.level + 1).max().unwrap_or(0)
    }

    /// A branch is looked at where its condition holds and those before it do not.
    fn case(&mut self, case: Case, guard: Option<&Expr>) -> Result<Expr> {
        let base = case.expr.map(|expr| self.rewrite(*expr, guard)).transpose()?;
        let mut before = guard.cloned();
        let mut branches = Vec::with_capacity(case.when_then_expr.len());
        for (when, then) in case.when_then_expr {
            let when = self.rewrite(*when, before.as_ref())?;
            let holds = match &base {
                Some(base) => base.clone().eq(when.clone()),
                None => when.clone(),
            };
            let taken = conjunction(before.clone().into_iter().chain([holds.clone().is_true()]));
            let then = self.rewrite(*then, taken.as_ref())?;
            before = conjunction(before.into_iter().chain([holds.is_not_true()]));
            branches.push((Box::new(when), Box::new(then)));
        }
        let otherwise = case.else_expr.map(|expr| self.rewrite(*expr, before.as_ref())).transpose()?;
        Ok(Expr::Case(Case::new(base.map(Box::new), branches, otherwise.map(Box::new))))
    }

    /// `AND` and `OR`: operands without calls decide first, and a call is needed where they leave it open.
    fn chain(&mut self, expr: Expr, op: Operator, guard: Option<&Expr>) -> Result<Expr> {
        let mut operands = Vec::new();
        flatten(expr, op, &mut operands);
        let mut open = guard.cloned();
        let leaves_open = |operand: &Expr| match op {
            Operator::And => operand.clone().is_not_false(),
            _ => operand.clone().is_not_true(),
        };
        for operand in operands.iter().filter(|operand| !has_call(operand)) {
            open = conjunction(open.into_iter().chain([leaves_open(operand)]));
        }
        let mut done = Vec::with_capacity(operands.len());
        for operand in operands {
            let calls = has_call(&operand);
            let operand = self.rewrite(operand, open.as_ref())?;
            if calls {
                open = conjunction(open.into_iter().chain([leaves_open(&operand)]));
            }
            done.push(operand);
        }
        let whole = match op {
            Operator::And => conjunction(done),
            _ => disjunction(done),
        };
        whole.map_or_else(|| plan_err!("a chain of conditions has operands"), Ok)
    }

    /// The program of the calls, with conditions on their answers.
    pub(super) fn program(self, input: &DFSchema, conditions: Vec<Expr>) -> Result<(Vec<Expr>, Program)> {
        let names: Vec<String> = self.calls.iter().map(|call| call.name.clone()).collect();
        let mut slots = Slots::default();
        let mut calls = Vec::with_capacity(self.calls.len());
        for call in self.calls {
            let mut call = call;
            call.map_exprs(&mut |expr| slots.bind(expr, input, &names))?;
            calls.push(call);
        }
        let conjuncts = if conditions.is_empty() {
            vec![Conjunct { calls: (0..calls.len()).collect(), condition: None }]
        } else {
            let one = |condition: Expr| {
                let read = condition.column_refs();
                let own = needed(&calls, |name| read.iter().any(|column| column.name == name));
                drop(read);
                Ok(Conjunct { calls: own, condition: Some(slots.bind(condition, input, &names)?) })
            };
            conditions.into_iter().map(one).collect::<Result<_>>()?
        };
        let (exprs, types) = slots.finish();
        Ok((exprs, Program { slots: types, calls, conjuncts }))
    }
}

fn list_of(kind: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(kind, true)))
}

fn flatten(expr: Expr, op: Operator, operands: &mut Vec<Expr>) {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: own, right }) if own == op => {
            flatten(*left, op, operands);
            flatten(*right, op, operands);
        }
        other => operands.push(other),
    }
}
