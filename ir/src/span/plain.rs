//! Plans for servers that know nothing of spans: their prompts are plain, and what a server finds again of one
//! is its beginning (an automatic prefix cache). So spans stand where prompts have most in common.
//!
//! Spans commute, so a plan says the same in any order of them. Those that most calls read come first, as the
//! items of an FP-tree do; outputs, which no other prompt begins with, come last. Then the queries with one
//! beginning are neighbours. Here a span sees what stands before it, as in any prompt.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use base::Role;

use super::plan::{Item, Plan, SpanMember, SpanPart};

/// A message, to be compared by what it says.
type Words<'a> = (&'static str, &'a str);

/// How many groups of spans a span stands in, by its messages.
type Readers = HashMap<Vec<(Role, Arc<str>)>, usize>;

/// Makes plain calls of those with spans, in all plans that are to run together. Returns an order of the plans
/// in which those whose prompts begin alike follow one another; of equal ones the earliest comes first.
pub fn lower_plain(plans: &mut [&mut Plan]) -> Vec<usize> {
    let readers = readers(plans);
    for call in plans.iter_mut().flat_map(|plan| &mut plan.calls) {
        let items = std::mem::take(&mut call.items).into_iter();
        let plain = items.flat_map(|item| match item {
            Item::Part(part) => vec![Item::Part(part)],
            Item::Group(members) => ordered(members, &readers),
        });
        call.items = plain.collect();
    }
    let mut order: Vec<usize> = (0..plans.len()).collect();
    order.sort_by_cached_key(|plan| beginning(&*plans[*plan]));
    order
}

fn readers(plans: &[&mut Plan]) -> Readers {
    let mut readers = Readers::new();
    let items = plans.iter().flat_map(|plan| &plan.calls).flat_map(|call| &call.items);
    for item in items {
        let Item::Group(members) = item else { continue };
        for messages in members.iter().filter_map(messages) {
            *readers.entry(messages).or_default() += 1;
        }
    }
    readers
}

/// What a span says, where no call has to run for it.
fn messages(member: &SpanMember) -> Option<Vec<(Role, Arc<str>)>> {
    let message = |part: &SpanPart| match part {
        SpanPart::Message(role, text) => Some((*role, Arc::clone(text))),
        SpanPart::Output(_) | SpanPart::Whole(_) => None,
    };
    member.parts.iter().map(message).collect()
}

/// The parts of spans: of most readers first, of as many by what they say, outputs last and as they stand.
fn ordered(mut members: Vec<SpanMember>, readers: &Readers) -> Vec<Item> {
    members.sort_by_cached_key(|member| {
        let messages = messages(member);
        let count = messages.as_ref().and_then(|messages| readers.get(messages)).copied();
        let words = messages.into_iter().flatten().map(|(role, text)| (role.name(), text));
        (Reverse(count.unwrap_or(0)), words.collect::<Vec<_>>())
    });
    members.into_iter().flat_map(|member| member.parts).map(Item::Part).collect()
}

/// What the calls of a plan that wait for none begin with.
fn beginning(plan: &Plan) -> Vec<Words<'_>> {
    let first = plan.calls.iter().filter(|call| call.level == 0).flat_map(|call| &call.items);
    let words = first.flat_map(Item::parts).filter_map(|part| match part {
        SpanPart::Message(role, text) => Some((role.name(), &**text)),
        SpanPart::Output(_) | SpanPart::Whole(_) => None,
    });
    words.collect()
}
