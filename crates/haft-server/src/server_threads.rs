//! The threads that serve connections. Each thread has its own tokio runtime, so that the tasks of a response stay on the
//! thread of its connection.
//!
//! With one runtime for all threads, each task that a response starts or wakes up wakes a second thread, which mostly
//! finds nothing to do. This took a third of the CPU time of a short response.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// The maximum number of threads for blocking work, such as slow file operations, over all runtimes.
const BLOCKING_THREADS_MAX: usize = 512;

/// The interval of a timer that each thread always has. A runtime writes to its wake-up descriptor for each timer that
/// expires earlier than all others, and the time limits of a response are such timers if the thread is otherwise idle.
const TIMER_INTERVAL: Duration = Duration::from_millis(500);

/// The maximum time that a stopping server waits for its threads. A task ends at its next `.await`.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The threads of a server. Dropping this value stops them, and cancels their tasks.
#[derive(Debug)]
pub(crate) struct ServerThreads {
    handles: ThreadHandles,
    stop: watch::Sender<()>,
    /// Closed when all threads have ended.
    ended: mpsc::Receiver<()>,
}

/// Spawns tasks on the threads of a server. Clones use the same threads.
#[derive(Debug, Clone)]
pub(crate) struct ThreadHandles(Arc<[ThreadHandle]>);

#[derive(Debug)]
struct ThreadHandle {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
}

impl ServerThreads {
    /// Starts one thread for each core.
    pub(crate) fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let (stop, stopped) = watch::channel(());
        let (running, ended) = mpsc::channel(1);
        let start = |_| start_thread(BLOCKING_THREADS_MAX / count, stopped.clone(), running.clone());
        let handles = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(Self { handles: ThreadHandles(handles), stop, ended })
    }

    pub(crate) fn handles(&self) -> &ThreadHandles {
        &self.handles
    }

    /// Stops the threads, and waits until no task runs any more.
    pub(crate) async fn stop(self) {
        let Self { handles: _, stop, mut ended } = self;
        drop(stop);
        // Do not wait longer for a task that computes without a pause: it ends with the process.
        let _ = timeout(STOP_TIMEOUT, ended.recv()).await;
    }
}

impl ThreadHandles {
    /// Spawns the task of a connection on the thread with the fewest connections.
    pub(crate) fn spawn_connection(
        &self,
        tasks: &mut JoinSet<()>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let least = self.0.iter().min_by_key(|thread| thread.connections.load(Ordering::Relaxed));
        let Some(thread) = least else { return };
        let counted = CountedConnection::begin(&thread.connections);
        let task = async move {
            task.await;
            drop(counted);
        };
        tasks.spawn_on(task, &thread.runtime);
    }

    /// Spawns a task that belongs to no connection.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(thread) = self.0.first() {
            thread.runtime.spawn(task);
        }
    }
}

/// Starts a thread, which drops `running` when it ends.
fn start_thread(
    blocking_threads_max: usize,
    stopped: watch::Receiver<()>,
    running: mpsc::Sender<()>,
) -> io::Result<ThreadHandle> {
    let (started, starting) = std::sync::mpsc::channel();
    thread::Builder::new().name("serve".into()).spawn(move || {
        let built = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(blocking_threads_max.max(1))
            .build();
        // Sending cannot fail, because the other side waits for this message.
        let _ = started.send(built.as_ref().map(|runtime| runtime.handle().clone()).map_err(io::Error::kind));
        if let Ok(runtime) = built {
            drive(runtime, stopped);
        }
        drop(running);
    })?;
    let runtime = starting.recv().map_err(io::Error::other)??;
    Ok(ThreadHandle { runtime, connections: Arc::default() })
}

/// Runs the tasks of one thread until the server stops.
fn drive(runtime: Runtime, mut stopped: watch::Receiver<()>) {
    runtime.block_on(async move {
        let mut timer = interval(TIMER_INTERVAL);
        loop {
            tokio::select! {
                // The server only closes the channel, and sends no value.
                _ = stopped.changed() => return,
                _ = timer.tick() => {}
            }
        }
    });
    runtime.shutdown_background();
}

/// Counts a connection of a thread until it is dropped.
struct CountedConnection(Arc<AtomicUsize>);

impl CountedConnection {
    fn begin(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread::ThreadId;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn connections_are_spread_over_the_threads_and_their_tasks_stay_there() {
        let threads = ServerThreads::start().unwrap();
        let handles = threads.handles().clone();
        let count = handles.0.len();
        let (mut tasks, close) = (JoinSet::new(), Arc::new(Notify::new()));
        let used: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
        for _ in 0..2 * count {
            let (used, close) = (Arc::clone(&used), Arc::clone(&close));
            handles.spawn_connection(&mut tasks, async move {
                let thread = thread::current().id();
                let started = tokio::spawn(async { thread::current().id() }).await.unwrap();
                assert_eq!(started, thread, "a task moved to another thread");
                used.lock().unwrap().push(thread);
                close.notified().await;
            });
        }
        while used.lock().unwrap().len() < 2 * count {
            tokio::task::yield_now().await;
        }
        let used = used.lock().unwrap().clone();
        assert!(used.iter().all(|id| used.iter().filter(|other| *other == id).count() == 2), "{used:?}");
        close.notify_waiters();
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        assert!(handles.0.iter().all(|thread| thread.connections.load(Ordering::Relaxed) == 0));
        threads.stop().await;
    }

    #[tokio::test]
    async fn stopped_threads_cancel_their_tasks() {
        let threads = ServerThreads::start().unwrap();
        let mut tasks = JoinSet::new();
        threads.handles().spawn_connection(&mut tasks, std::future::pending());
        threads.stop().await;
        assert!(tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
    }
}
