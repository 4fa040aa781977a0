//! Queues limit the number of calls that run at once, and define the order of the waiting calls.
//!
//! A queue is a concrete type, not a trait. A distributed version would replace [`Queue::acquire`]: a slot is already a
//! lease, which its holder releases by dropping it, and which ends with the call's deadline at the latest.

mod waiting_list;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_core::name::QueueName;
use haft_core::principal::Principal;
use haft_core::priority::Priority;
use tokio::sync::oneshot;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

pub use waiting_list::AGEING_ADMISSIONS;
use waiting_list::{JoinOutcome, QueuePosition, WaitingList};

/// The operator's settings for a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueConfig {
    /// The maximum number of calls that run at once.
    pub concurrent: NonZeroUsize,
    /// The maximum number of waiting calls per principal. The queue refuses further calls of that principal.
    pub waiting_max: usize,
    /// The time limit for a call, including its wait, unless its own timeout is shorter.
    pub timeout_default: Option<Duration>,
}

/// The name of the queue for tools without a named queue, if the operator defines it.
pub const QUEUE_DEFAULT: &str = "default";

/// All queues, by name. Clones share the queues, so orchestrators of several runs compete for the same slots.
#[derive(Debug, Clone, Default)]
pub struct Queues {
    by_name: Arc<HashMap<QueueName, Queue>>,
    default: Option<Queue>,
}

impl Queues {
    /// Creates a queue for each entry. Tools without a queue use the one named [`QUEUE_DEFAULT`].
    pub fn new(configs: impl IntoIterator<Item = (QueueName, QueueConfig)>) -> Self {
        let queue = |(name, config): (QueueName, QueueConfig)| (name.clone(), Queue::new(name, config));
        let by_name: HashMap<_, _> = configs.into_iter().map(queue).collect();
        let default = by_name.values().find(|queue| queue.name.as_str() == QUEUE_DEFAULT).cloned();
        Self { by_name: Arc::new(by_name), default }
    }

    /// Returns the queues for a new configuration. A queue with unchanged settings is kept: its slots stay taken, and
    /// its waiting calls keep their order.
    #[must_use]
    pub fn renewed(&self, configs: impl IntoIterator<Item = (QueueName, QueueConfig)>) -> Self {
        let mut renewed = Self::new(configs);
        let unchanged = |(name, queue): (QueueName, Queue)| match self.get(&name) {
            Some(before) if before.config == queue.config => (name, before.clone()),
            Some(_) | None => (name, queue),
        };
        let by_name: HashMap<_, _> = renewed.by_name.as_ref().clone().into_iter().map(unchanged).collect();
        renewed.default = by_name.values().find(|queue| queue.name.as_str() == QUEUE_DEFAULT).cloned();
        renewed.by_name = Arc::new(by_name);
        renewed
    }

    /// Returns the queue with this name, or `None` if the operator has not defined it.
    pub fn get(&self, name: &QueueName) -> Option<&Queue> {
        self.by_name.get(name)
    }

    /// Returns the fill level of every queue, sorted by name.
    pub fn snapshot(&self) -> Vec<QueueSnapshot> {
        let mut snapshots: Vec<_> = self.by_name.values().map(Queue::snapshot).collect();
        snapshots.sort_by(|left, right| left.name.cmp(&right.name));
        snapshots
    }

    /// Returns the named queue, or the default queue if no name is given, or `None` if no default exists.
    pub(crate) fn of(&self, named: Option<&QueueName>) -> Result<Option<&Queue>, UndefinedQueue> {
        match named {
            Some(name) => self.get(name).map(Some).ok_or_else(|| UndefinedQueue(name.clone())),
            None => Ok(self.default.as_ref()),
        }
    }
}

/// A policy names a queue that is not defined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("queue `{0}` is not defined; define it under `queues`")]
pub struct UndefinedQueue(pub QueueName);

/// The fill level of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSnapshot {
    /// The name under which policies refer to the queue.
    pub name: QueueName,
    /// The number of calls that hold a slot.
    pub in_use: usize,
    /// The number of calls that wait for a slot.
    pub waiting: usize,
    /// The waiting time of the most recently admitted call.
    pub last_wait: Duration,
}

/// A queue that limits the number of calls that run at once.
#[derive(Debug, Clone)]
pub struct Queue {
    name: QueueName,
    config: QueueConfig,
    state: Arc<Mutex<QueueState>>,
}

#[derive(Debug)]
struct QueueState {
    line: WaitingList<oneshot::Sender<()>>,
    last_wait: Duration,
}

impl Queue {
    fn new(name: QueueName, config: QueueConfig) -> Self {
        let line = WaitingList::new(config.concurrent, config.waiting_max);
        Self { name, config, state: Arc::new(Mutex::new(QueueState { line, last_wait: Duration::ZERO })) }
    }

    /// Returns the name under which policies refer to the queue.
    pub fn name(&self) -> &QueueName {
        &self.name
    }

    /// Returns the operator's settings, which never change for one queue.
    pub fn config(&self) -> &QueueConfig {
        &self.config
    }

    /// Returns the fill level of this queue.
    pub fn snapshot(&self) -> QueueSnapshot {
        let state = lock(&self.state);
        let (in_use, waiting) = (state.line.in_use(), state.line.waiting());
        QueueSnapshot { name: self.name.clone(), in_use, waiting, last_wait: state.last_wait }
    }

    /// Waits for a slot. Dropping the future leaves the queue.
    pub async fn acquire(&self, principal: &Principal, priority: Priority) -> Result<Slot, QueueFull> {
        let (mut slot, admitted) = self.join(principal, priority)?;
        let Some(admitted) = admitted else {
            lock(&self.state).last_wait = Duration::ZERO;
            return Ok(slot);
        };
        let (began, QueueSnapshot { in_use, waiting, .. }) = (Instant::now(), self.snapshot());
        // `admitted` cannot fail, because the sender lives as long as the call's position in the queue, and the
        // position lives as long as `slot`. `unconstrained` disables tokio's cooperative budget, so that calls admitted
        // together start in queue order.
        let _ = unconstrained(admitted).await;
        let time = began.elapsed();
        slot.wait = Some(SlotWait { time, in_use, waiting });
        lock(&self.state).last_wait = time;
        Ok(slot)
    }

    fn join(
        &self,
        principal: &Principal,
        priority: Priority,
    ) -> Result<(Slot, Option<oneshot::Receiver<()>>), QueueFull> {
        // A call that is admitted immediately needs no channel.
        let mut admitted = None;
        let joined = lock(&self.state).line.join(principal, priority, || {
            let (sender, receiver) = oneshot::channel();
            admitted = Some(receiver);
            sender
        });
        let slot = |place| {
            let (state, principal) = (Arc::clone(&self.state), principal.clone());
            Slot { state, principal, place, wait: None }
        };
        match joined {
            JoinOutcome::In(place) | JoinOutcome::Waits(place) => Ok((slot(place), admitted)),
            JoinOutcome::Full => {
                Err(QueueFull { name: self.name.clone(), waiting_max: self.config.waiting_max })
            }
        }
    }
}

/// A call's position in the queue, and after its admission the permission to run. Dropping the slot admits the next
/// call.
#[derive(Debug)]
pub struct Slot {
    state: Arc<Mutex<QueueState>>,
    principal: Principal,
    place: QueuePosition,
    wait: Option<SlotWait>,
}

/// The wait of a call for its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotWait {
    /// The time from the call's arrival until it got its slot.
    pub time: Duration,
    /// The number of running calls when this call arrived.
    pub in_use: usize,
    /// The number of waiting calls at that time, including this one.
    pub waiting: usize,
}

impl Slot {
    /// Returns the wait of the call, or `None` if it was admitted immediately.
    pub fn wait(&self) -> Option<SlotWait> {
        self.wait
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = lock(&self.state).line.leave(&self.principal, self.place);
        if let Some(next) = next {
            // Ignore the error: the waiting call has dropped its receiver and is about to drop its slot, which admits
            // the next call.
            let _ = next.send(());
        }
    }
}

/// The waiting list of the queue is full.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("queue `{name}` is full: {}; try again later", waiting(*waiting_max))]
pub struct QueueFull {
    /// The name of the full queue.
    pub name: QueueName,
    /// The number of calls that already wait, which is the configured limit.
    pub waiting_max: usize,
}

fn waiting(max: usize) -> String {
    match max {
        0 => "all its slots are in use, and `maxWaiting` is 0".to_owned(),
        1 => "1 call is waiting already".to_owned(),
        max => format!("{max} calls are waiting already"),
    }
}

fn lock(state: &Mutex<QueueState>) -> MutexGuard<'_, QueueState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
