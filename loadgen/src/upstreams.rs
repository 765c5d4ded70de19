//! The servers behind a contestant while they run: started with empty caches, counted, killed and joined by
//! others in a run.

use std::time::Duration;

use tokio::time::Instant;

use crate::Error;
use crate::client::{ApiTarget, Targets};
use crate::contest::{Contest, Contestant, Upstream};
use crate::server::{PrefixCounts, ServerProcess};

/// Upstreams that run, or will.
pub struct RunningUpstreams<'a> {
    contest: &'a Contest,
    upstreams: Vec<&'a Upstream>,
    servers: Vec<ServerProcess>,
    /// Whether one died or came, so that they are not those that they were.
    has_changed: bool,
}

impl<'a> RunningUpstreams<'a> {
    /// The upstreams of these names, none of them started.
    pub fn of(contest: &'a Contest, names: &[String]) -> Self {
        let upstreams = names.iter().filter_map(|name| contest.upstream(name)).collect();
        Self { contest, upstreams, servers: Vec::new(), has_changed: false }
    }

    /// Upstreams whose caches are empty: they were never asked, will be reset after the warm-up, or are started
    /// anew.
    pub async fn refresh(&mut self, timeout: Duration) -> Result<(), Error> {
        let can_reset = self.upstreams.iter().all(|upstream| upstream.reset.is_some());
        if can_reset && !self.has_changed && !self.servers.is_empty() {
            return Ok(());
        }
        self.stop().await?;
        for upstream in &self.upstreams {
            self.servers.push(upstream.start(timeout).await?);
        }
        self.has_changed = false;
        Ok(())
    }

    /// Those that run.
    pub fn servers(&self) -> &[ServerProcess] {
        &self.servers
    }

    /// Where to send: to the server in front of them, or else to themselves in turn.
    pub fn targets(&self, front: Option<&ServerProcess>) -> Result<Targets, Error> {
        let asked: Vec<ApiTarget> = match front {
            Some(front) => vec![front.target.clone()],
            None => self.servers.iter().map(|server| server.target.clone()).collect(),
        };
        Targets::new(asked).ok_or_else(|| Error::Client("no server runs".into()))
    }

    /// Tells those that have a route for it to forget what their caches hold.
    pub async fn reset(&self) -> Result<(), Error> {
        for (upstream, server) in self.upstreams.iter().zip(&self.servers) {
            if let Some(path) = &upstream.reset {
                server.reset(path).await?;
            }
        }
        Ok(())
    }

    /// What all prefix caches together counted; none where one of them does not say, or is dead.
    pub async fn prefix_counts(&self) -> Option<PrefixCounts> {
        let mut sum = PrefixCounts { asked: 0.0, hit: 0.0 };
        for server in &self.servers {
            let own = server.prefix_counts().await?;
            sum = PrefixCounts { asked: sum.asked + own.asked, hit: sum.hit + own.hit };
        }
        (!self.servers.is_empty()).then_some(sum)
    }

    /// Lets the events of a contestant happen at their times, counted from now; `front` is the server that is
    /// told of those that come.
    pub async fn happen(
        &mut self,
        contestant: &Contestant,
        front: Option<&ServerProcess>,
        timeout: Duration,
    ) -> Result<(), Error> {
        let start = Instant::now();
        for event in &contestant.events {
            self.has_changed = true;
            tokio::time::sleep_until(start + Duration::from_secs_f64(event.at_s)).await;
            if let Some(name) = &event.kill
                && let Some(server) = self.servers.iter_mut().find(|server| server.name() == name)
            {
                server.kill().await?;
            }
            if let (Some(upstream), Some(front)) =
                (event.add.as_ref().and_then(|name| self.contest.upstream(name)), front)
            {
                let server = upstream.start(timeout).await?;
                front.add_replica(&contestant.replica_entry(&server), contestant.admin_key.clone()).await?;
                self.servers.push(server);
            }
        }
        Ok(())
    }

    /// Ends all of them.
    pub async fn stop(&mut self) -> Result<(), Error> {
        for server in self.servers.drain(..) {
            server.stop().await?;
        }
        Ok(())
    }
}

/// A server that runs, with its upstreams where it has any; one of them at least is there.
pub struct RunningContestant<'a> {
    own: Option<ServerProcess>,
    upstreams: RunningUpstreams<'a>,
}

impl<'a> RunningContestant<'a> {
    /// Starts a server and, before it, its upstreams.
    pub async fn start(
        contest: &'a Contest,
        server: &'a Contestant,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let mut upstreams = RunningUpstreams::of(contest, &server.upstreams);
        upstreams.refresh(timeout).await?;
        let own = server.start(upstreams.servers(), timeout).await?;
        Ok(Self { own, upstreams })
    }

    /// Where to send.
    pub fn targets(&self) -> Result<Targets, Error> {
        self.upstreams.targets(self.own.as_ref())
    }

    /// Ends all of them.
    pub async fn stop(mut self) -> Result<(), Error> {
        if let Some(own) = self.own {
            own.stop().await?;
        }
        self.upstreams.stop().await
    }
}
