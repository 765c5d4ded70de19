//! Replicas come and go: the fleet takes on those of a new list, and lets go what the list no longer has.
//!
//! A replica that nobody names any more gets nothing new, finishes what it has, and then goes with its health
//! watcher and its metrics. If it is named again before, it stays. Numbers of replicas are never used twice.

use scheduler::fleet::ReplicaId;

use super::fleet::Fleet;
use super::members::ReplicaMember;
use super::start_error::FleetStartError;
use crate::driver::Engine;

impl Fleet {
    /// Adds a replica; `engine`: the local one's.
    pub(super) fn add(
        &mut self,
        member: ReplicaMember,
        engine: Option<Engine>,
    ) -> Result<(), FleetStartError> {
        let id = ReplicaId(self.next_id);
        self.next_id += 1;
        // Of an address that another model or name had, nothing of the old one stays.
        self.evict_other(&member);
        let replica = self.factory.make(id, member, engine)?;
        self.queue.add_replica(id, replica.size)?;
        if replica.is_local() {
            self.queue.set_plans_itself(id);
        }
        self.replicas.insert(id, replica);
        self.tell_prices();
        Ok(())
    }

    /// What rows may cost follows from where they may run.
    fn tell_prices(&self) {
        self.shared.prices.set(self.replicas.values().map(|replica| replica.prices));
    }

    /// The replicas are these from now on.
    pub(super) fn take_members(&mut self, members: Vec<ReplicaMember>) {
        for replica in self.replicas.values_mut() {
            let is_named = members.iter().any(|member| member.key == replica.member.key);
            if replica.is_leaving() == is_named {
                replica.set_leaving(!is_named);
                let what = if is_named { "the replica stays" } else { "the replica leaves" };
                tracing::info!(replica = replica.name(), "{what}");
            }
        }
        for member in members {
            let known = self.replicas.iter().find(|(_, replica)| replica.member.key == member.key);
            let taken = match known.map(|(id, replica)| (*id, replica.member == member)) {
                Some((_, true)) => continue,
                Some((id, false)) => self.change(id, member),
                None => {
                    tracing::info!(replica = member.name, source = member.source.name(), "a replica comes");
                    self.add(member, None)
                }
            };
            if let Err(error) = taken {
                tracing::error!(%error, "a replica cannot be taken on");
            }
        }
    }

    /// Gives a replica other settings; what it has stays with it.
    fn change(&mut self, id: ReplicaId, member: ReplicaMember) -> Result<(), FleetStartError> {
        self.evict_other(&member);
        let Some(replica) = self.replicas.get_mut(&id) else { return Ok(()) };
        if replica.member.is_drained != member.is_drained {
            let is_drained = member.is_drained;
            tracing::info!(
                replica = member.name,
                is_drained,
                "an operator drains a replica or takes it back"
            );
        }
        if replica.member.settings == member.settings && replica.name() == member.name {
            // Somebody else names it now, or an operator has his say.
            replica.member = member;
            return Ok(());
        }
        let old_name = replica.name().to_owned();
        tracing::info!(replica = member.name, "the replica has other settings");
        let fresh = self.factory.make(id, member, None)?;
        replica.take_settings_of(fresh);
        self.tell_prices();
        self.forget_metrics(&old_name);
        Ok(())
    }

    /// Takes a name from another replica, which leaves or gets another name next: a name stands for one. It goes on
    /// with what it has under its address, unless this one is there now.
    fn evict_other(&mut self, member: &ReplicaMember) {
        let is_other = |name: &str, key| name == member.name && key != &member.key;
        let others = self.replicas.iter().filter(|(_, one)| is_other(one.name(), &one.member.key));
        let others: Vec<(ReplicaId, Option<String>)> =
            others.map(|(id, one)| (*id, one.member.name_beside(member))).collect();
        for (id, name) in others {
            let is_free = |name: &String| !self.replicas.values().any(|one| one.name() == name);
            match name.filter(is_free) {
                Some(name) => self.rename(id, name),
                None => self.remove(id),
            }
        }
    }

    /// Calls a replica something else; what it has stays with it.
    fn rename(&mut self, id: ReplicaId, name: String) {
        let metrics = self.shared.metrics.replica(&name);
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        tracing::info!(replica = replica.name(), name, "another replica takes the name");
        let old = replica.rename(name, metrics);
        self.forget_metrics(&old);
    }

    /// An operator does not wait for what a leaving replica has: it goes elsewhere.
    pub(super) fn evict(&mut self, name: &str) {
        let leaving = self.replicas.iter().filter(|(_, one)| one.is_leaving() && one.name() == name);
        let leaving: Vec<ReplicaId> = leaving.map(|(id, _)| *id).collect();
        leaving.into_iter().for_each(|id| self.remove(id));
    }

    /// Ends those that leave and have no row any more.
    pub(super) fn let_go(&mut self) {
        let gone = self.replicas.iter().filter(|(_, replica)| replica.has_left());
        let gone: Vec<ReplicaId> = gone.map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.remove(id));
    }

    /// Ends a replica; rows that it still has wait again.
    fn remove(&mut self, id: ReplicaId) {
        for request in self.queue.remove_replica(id) {
            self.take_back(request);
        }
        let Some(replica) = self.replicas.remove(&id) else { return };
        tracing::info!(replica = replica.name(), "the replica has left");
        let name = replica.name().to_owned();
        drop(replica);
        self.tell_prices();
        self.forget_metrics(&name);
    }

    /// Removes a name's series, unless another replica has it now.
    fn forget_metrics(&self, name: &str) {
        if !self.replicas.values().any(|replica| replica.name() == name) {
            self.shared.metrics.forget_replica(name);
        }
    }
}
