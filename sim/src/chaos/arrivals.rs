//! What comes into a world and what is called off.

use std::sync::Arc;

use base::{
    Generation, Nanos, RelQueryId, ServiceClass, Span, SpanKind, Submission, TenantId, TokenCount, TokenId,
    WorkItem,
};
use scheduler::Scheduler;

use super::World;
use super::draws::ChaosDraws;

impl World<'_> {
    /// A relQuery arrives, or many alike at the same instant.
    pub(super) fn arrive(&mut self) {
        let alike = if self.draws.one_in(6) { self.draws.between(2, 12) } else { 1 };
        let prompts = match self.favourite.take().filter(|_| self.draws.one_in(2)) {
            Some(prompts) => prompts,
            None => self.prompts(),
        };
        for _ in 0..alike {
            let items = self.items(&prompts, 0);
            self.submit(items);
        }
        self.favourite = Some(prompts);
    }

    /// The rows of a table: a template, a value that neighbours may share, and one of their own.
    fn prompts(&mut self) -> Vec<Vec<u32>> {
        let template = self.draws.below(12) as u32;
        let rows = self.draws.between(1, self.setup.rows_max);
        let row = |draws: &mut ChaosDraws, most: u64| {
            let mut prompt: Vec<u32> = (0..template).map(|i| 1_000 + i).collect();
            for _ in 0..draws.between(1, most) {
                prompt.push(draws.below(3) as u32);
            }
            prompt
        };
        (0..rows).map(|_| row(&mut self.draws, self.setup.prompt_max)).collect()
    }

    fn items(&mut self, prompts: &[Vec<u32>], first_row: u32) -> Vec<WorkItem> {
        let output_max = self.draws.between(1, self.setup.output_max);
        let generation = Arc::new(Generation { output_max: TokenCount(output_max), ..Generation::default() });
        let items: Vec<WorkItem> = prompts
            .iter()
            .zip(first_row..)
            .map(|(prompt, row)| {
                self.next_seed += 1;
                let shared = prompt.iter().take_while(|token| **token >= 1_000).count() as u64;
                let spans = [(SpanKind::Template, shared), (SpanKind::Field, prompt.len() as u64 - shared)];
                WorkItem {
                    row,
                    prompt: prompt.iter().map(|token| TokenId(*token)).collect(),
                    spans: spans.map(|(kind, tokens)| Span { kind, tokens: TokenCount(tokens) }).into(),
                    sections: Arc::default(),
                    generation: Arc::clone(&generation),
                    seed: self.next_seed,
                }
            })
            .collect();
        self.memory.know(&items);
        items
    }

    fn submit(&mut self, items: Vec<WorkItem>) {
        let id = RelQueryId(self.next_id);
        self.next_id += 1;
        let classes = [ServiceClass::Interactive, ServiceClass::Dashboard, ServiceClass::Bulk];
        let (mut class, mut deadline) = (ServiceClass::Interactive, None);
        if self.setup.classes {
            class = self.draws.pick(&classes);
            deadline = self.draws.one_in(3).then(|| self.now + Nanos(self.draws.below(3_000_000_000)));
        }
        let submission = Submission {
            id,
            tenant: TenantId(self.draws.below(self.setup.tenants)),
            weight: self.draws.pick(&[1, 500, 1_000, 7_000]),
            scope: u128::from(self.draws.below(2)),
            class,
            arrival: self.now,
            deadline,
            items: items.clone(),
        };
        let described = format!("{:?} arrives with {} rows, {class:?}", id, items.len());
        match self.scheduler.submit(submission) {
            Ok(()) => {
                self.say(|| described);
                self.take(id, &items);
            }
            Err(refused) => {
                self.say(|| format!("{described}: refused, {refused}"));
                self.tally.refused += 1;
            }
        }
    }

    fn take(&mut self, id: RelQueryId, items: &[WorkItem]) {
        let (rates, draws) = (self.setup.rates, &mut self.draws);
        let odd = || (draws.one_in(rates.poison), draws.one_in(rates.broken));
        self.accounting.take(id, self.now, items, self.tally.steps, odd);
    }

    pub(super) fn extend(&mut self) {
        let id = RelQueryId(self.draws.between(1, self.next_id));
        let first_row = 100 * self.draws.between(1, 50) as u32;
        let prompts = self.prompts();
        let items = self.items(&prompts, first_row);
        if self.scheduler.extend(id, items.clone()).is_ok() {
            self.say(|| format!("{id:?} gets {} more rows", items.len()));
            self.take(id, &items);
        }
    }

    /// A relQuery or a row is called off; a second time there is nothing to call off.
    pub(super) fn cancel(&mut self) -> Result<(), String> {
        let id = RelQueryId(self.next_id.saturating_sub(self.draws.below(12)));
        let whole = self.draws.one_in(2);
        let row = self.draws.below(self.setup.rows_max) as u32;
        let cancel = |scheduler: &mut Scheduler| {
            if whole { scheduler.cancel(id) } else { scheduler.cancel_row(id, row) }
        };
        if cancel(&mut self.scheduler) {
            self.say(|| format!("{id:?} is called off{}", if whole { "" } else { " in part" }));
            if whole {
                self.accounting.open.remove(&id).ok_or("a relQuery that has ended was called off")?;
            } else {
                self.accounting.cancel_row(id, row)?;
            }
        }
        if cancel(&mut self.scheduler) {
            return Err(format!("{id:?} was called off twice"));
        }
        self.scheduler.check_invariants()
    }
}
