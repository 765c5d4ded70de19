//! A tournament: texts meet in small groups, and the one of each group that fits best goes on. The best of all
//! is the last that is left; the next best is found by playing again only the groups that it had won.
//!
//! A call of a model reads a whole group and names one text of it ("setwise", arXiv 2310.09497), so that `n`
//! texts take about `n / (width - 1)` calls for the best and `log n` for each further one.

/// Texts that have not been taken out yet, with the winner of each group.
#[derive(Debug)]
pub(super) struct Tournament {
    width: usize,
    /// The texts, then the winners of their groups, and so on up to one; `None`: nobody is left there.
    levels: Vec<Vec<Option<usize>>>,
}

/// A group of a level: its winner stands at `place` of the level above the texts that meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TournamentGroup {
    pub level: usize,
    pub place: usize,
}

impl Tournament {
    /// So many texts, of which `width` meet at a time.
    pub(super) fn new(texts: usize, width: usize) -> Self {
        let width = width.max(2);
        let mut levels: Vec<Vec<Option<usize>>> = vec![(0..texts).map(Some).collect()];
        let mut last = texts;
        while last > 1 {
            last = last.div_ceil(width);
            levels.push(vec![None; last]);
        }
        Self { width, levels }
    }

    /// Groups of a level; the texts are level 0.
    pub(super) fn groups(&self, level: usize) -> impl Iterator<Item = TournamentGroup> + use<> {
        let places = self.levels.get(level).map_or(0, Vec::len);
        (0..places).map(move |place| TournamentGroup { level, place })
    }

    /// The highest level.
    pub(super) fn top(&self) -> usize {
        self.levels.len() - 1
    }

    /// The texts that meet in a group.
    pub(super) fn candidates(&self, group: TournamentGroup) -> Vec<usize> {
        let below = &self.levels[group.level - 1];
        let first = group.place * self.width;
        below[first..below.len().min(first + self.width)].iter().flatten().copied().collect()
    }

    /// Who wins a group; `None` where nobody is left in it.
    pub(super) fn decide(&mut self, group: TournamentGroup, winner: Option<usize>) {
        self.levels[group.level][group.place] = winner;
    }

    /// Takes the best of those left out, and gives the groups that it had won, the lowest first.
    pub(super) fn take_best(&mut self) -> Option<(usize, Vec<TournamentGroup>)> {
        let best = self.levels[self.top()].first().copied().flatten()?;
        self.levels[0][best] = None;
        let mut place = best;
        let groups = (1..self.levels.len()).map(|level| {
            place /= self.width;
            TournamentGroup { level, place }
        });
        Some((best, groups.collect()))
    }
}

/// Calls that ranking the first `wanted` of so many texts takes at most.
pub(super) fn calls_max(texts: usize, width: usize, wanted: usize) -> usize {
    let tournament = Tournament::new(texts, width);
    let of_levels = |from: usize| (from..=tournament.top()).map(|level| tournament.groups(level).count());
    let first: usize = if wanted == 0 { 0 } else { of_levels(1).sum() };
    first + wanted.min(texts).saturating_sub(1) * tournament.top()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Plays with texts whose worths are known. Gives the order and how many calls it took.
    fn play(worths: &[u32], width: usize, wanted: usize) -> (Vec<u32>, usize) {
        let mut tournament = Tournament::new(worths.len(), width);
        let mut calls = 0;
        let mut decide = |tournament: &mut Tournament, group: TournamentGroup| {
            let candidates = tournament.candidates(group);
            calls += usize::from(candidates.len() > 1);
            let best = candidates.into_iter().max_by_key(|text| (worths[*text], std::cmp::Reverse(*text)));
            tournament.decide(group, best);
        };
        for level in 1..=tournament.top() {
            for group in tournament.groups(level) {
                decide(&mut tournament, group);
            }
        }
        let mut order = Vec::new();
        while order.len() < wanted
            && let Some((best, groups)) = tournament.take_best()
        {
            order.push(worths[best]);
            if order.len() < wanted {
                groups.into_iter().for_each(|group| decide(&mut tournament, group));
            }
        }
        (order, calls)
    }

    proptest! {
        #[test]
        fn the_best_come_first_within_the_bound(
            worths in proptest::collection::vec(0_u32..1_000, 0..60),
            width in 2_usize..6,
            wanted in 1_usize..12,
        ) {
            let (order, calls) = play(&worths, width, wanted);
            let mut expected = worths.clone();
            expected.sort_unstable_by(|one, other| other.cmp(one));
            expected.truncate(wanted);
            prop_assert_eq!(order, expected);
            prop_assert!(calls <= calls_max(worths.len(), width, wanted));
        }
    }

    #[test]
    fn a_few_of_many_take_few_calls() {
        // 25 + 7 + 2 + 1 groups, then four times four levels.
        assert_eq!(calls_max(100, 4, 5), 35 + 16);
        assert_eq!(calls_max(1_000, 4, 5), 354);
        assert_eq!((calls_max(1, 4, 5), calls_max(0, 4, 5), calls_max(9, 4, 0)), (0, 0, 0));
    }
}
