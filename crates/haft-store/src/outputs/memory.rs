//! Outputs in memory, for programs that store nothing on disk. They are lost when the process ends.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures_util::future::BoxFuture;
use haft_core::event_store::RunKey;
use haft_core::output_store::{Handle, OutputStore, OutputStores, Spool, StoreEntry, StoreError};
use haft_core::settings::outputs::StoreLimits;
use uuid::Uuid;

/// Outputs of all runs in memory. Clones share them.
#[derive(Clone, Default)]
pub struct MemoryOutputs(Arc<Mutex<OutputTable>>);

#[derive(Default)]
struct OutputTable {
    outputs: BTreeMap<OutputKey, MemoryOutput>,
    bytes: u64,
    /// The number of outputs stored so far, by which they are ordered by age.
    stored: u64,
}

/// The run, and the name of the output in it.
type OutputKey = (RunKey, String);

struct MemoryOutput {
    bytes: Arc<[u8]>,
    number: u64,
    at: Instant,
}

impl OutputTable {
    fn add(&mut self, key: OutputKey, bytes: Arc<[u8]>) {
        self.stored += 1;
        self.bytes += bytes.len() as u64;
        self.outputs.insert(key, MemoryOutput { bytes, number: self.stored, at: Instant::now() });
    }

    fn remove(&mut self, key: &OutputKey) -> bool {
        let Some(output) = self.outputs.remove(key) else { return false };
        self.bytes -= output.bytes.len() as u64;
        true
    }

    /// Removes outputs that are too old, then the oldest outputs until the others are within the limits. Always keeps
    /// the newest output, because the model is about to read it.
    fn keep_within(&mut self, limits: &StoreLimits) {
        let expired = |output: &MemoryOutput| output.at.elapsed() > limits.keep;
        self.remove_where(expired);
        while self.bytes > limits.total_bytes_max && self.outputs.len() > 1 {
            let oldest = self.outputs.values().map(|output| output.number).min();
            self.remove_where(|output| Some(output.number) == oldest);
        }
    }

    fn remove_where(&mut self, is_removed: impl Fn(&MemoryOutput) -> bool) {
        self.outputs.retain(|_, output| !is_removed(output));
        self.bytes = self.outputs.values().map(|output| output.bytes.len() as u64).sum();
    }
}

impl OutputStores for MemoryOutputs {
    fn open(&self, key: &RunKey, limits: &StoreLimits) -> Result<Arc<dyn OutputStore>, StoreError> {
        Ok(Arc::new(MemoryRunOutputs { table: self.clone(), run: key.clone(), limits: limits.clone() }))
    }
}

impl MemoryOutputs {
    fn table(&self) -> MutexGuard<'_, OutputTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryOutputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOutputs").field("outputs", &self.table().outputs.len()).finish()
    }
}

/// The outputs of one run.
#[derive(Debug)]
struct MemoryRunOutputs {
    table: MemoryOutputs,
    run: RunKey,
    limits: StoreLimits,
}

impl MemoryRunOutputs {
    /// Returns the key of a handle. The error for a handle of another session is the same as for one that never
    /// existed.
    fn key(&self, handle: &Handle) -> Result<OutputKey, StoreError> {
        if handle.session() != self.run.run.to_string() {
            return Err(StoreError::NotFound);
        }
        Ok((self.run.clone(), handle.file().to_owned()))
    }

    fn read_now(&self, handle: &Handle, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let key = self.key(handle)?;
        let mut table = self.table.table();
        table.keep_within(&self.limits);
        let bytes = Arc::clone(&table.outputs.get(&key).ok_or(StoreError::NotFound)?.bytes);
        drop(table);
        let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let (start, end) = (within(range.start), within(range.end));
        Ok(bytes.get(start..end).unwrap_or_default().to_vec())
    }

    fn delete_now(&self, handle: &Handle) -> Result<(), StoreError> {
        let key = self.key(handle)?;
        if self.table.table().remove(&key) { Ok(()) } else { Err(StoreError::NotFound) }
    }
}

impl OutputStore for MemoryRunOutputs {
    fn begin(&self) -> Result<Box<dyn Spool>, StoreError> {
        let name = Uuid::new_v4().to_string();
        Ok(Box::new(MemorySpool {
            table: self.table.clone(),
            handle: Handle::new(&self.run.run.to_string(), &name).ok_or(StoreError::NotFound)?,
            key: (self.run.clone(), name),
            limits: self.limits.clone(),
            bytes: Vec::new(),
            complete: true,
        }))
    }

    fn reopen(&self, entry: &StoreEntry) -> Result<Box<dyn Spool>, StoreError> {
        let bytes = self.read_now(&entry.handle, 0..entry.bytes)?;
        if (bytes.len() as u64) < entry.bytes {
            return Err(StoreError::NotFound);
        }
        Ok(Box::new(MemorySpool {
            table: self.table.clone(),
            handle: entry.handle.clone(),
            key: self.key(&entry.handle)?,
            limits: self.limits.clone(),
            bytes,
            complete: entry.complete,
        }))
    }

    fn read_range<'a>(
        &'a self,
        handle: &'a Handle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Vec<u8>, StoreError>> {
        let read = self.read_now(handle, range);
        Box::pin(async move { read })
    }

    fn delete<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, Result<(), StoreError>> {
        let deleted = self.delete_now(handle);
        Box::pin(async move { deleted })
    }

    fn is_empty(&self) -> bool {
        let first = (self.run.clone(), String::new());
        let table = self.table.table();
        table.outputs.range(first..).next().is_none_or(|((run, _), _)| *run != self.run)
    }
}

/// An output that is being written. Dropping it discards the output.
struct MemorySpool {
    table: MemoryOutputs,
    key: OutputKey,
    handle: Handle,
    limits: StoreLimits,
    bytes: Vec<u8>,
    complete: bool,
}

impl Spool for MemorySpool {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let max = usize::try_from(self.limits.output_bytes_max).unwrap_or(usize::MAX);
        let taken = &bytes[..bytes.len().min(max.saturating_sub(self.bytes.len()))];
        self.complete &= taken.len() == bytes.len();
        self.bytes.extend_from_slice(taken);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<StoreEntry, StoreError> {
        let Self { table, key, handle, limits, bytes, complete } = *self;
        // Count a last line without a line end too, as readers of the output do.
        let open_line = bytes.last().is_some_and(|last| *last != b'\n');
        let lines = memchr::memchr_iter(b'\n', &bytes).count() as u64 + u64::from(open_line);
        let entry = StoreEntry { handle, bytes: bytes.len() as u64, lines, complete };
        let mut table = table.table();
        // An output that was opened again replaces its earlier, shorter content.
        table.remove(&key);
        table.add(key, bytes.into());
        table.keep_within(&limits);
        Ok(entry)
    }
}
