//! The resource limits for one confined command. Every limit has its unit in its name.

use serde::{Deserialize, Serialize};

/// The resource limits for one command and everything that it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLimits {
    /// The maximum number of processes and threads at the same time.
    pub processes_max: u64,
    /// The maximum number of open files per process.
    pub open_files_max: u64,
    /// The maximum size of a file that may be written, in bytes.
    pub file_bytes_max: u64,
    /// The maximum CPU time per process, in seconds.
    pub cpu_seconds_max: u64,
    /// The maximum private writable memory per process, in bytes.
    pub memory_bytes_max: u64,
    /// The size of the private `/dev/shm`, in bytes.
    pub shm_bytes_max: u64,
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self {
            processes_max: 1024,
            open_files_max: 4096,
            file_bytes_max: 10 << 30,
            cpu_seconds_max: 3600,
            memory_bytes_max: 8 << 30,
            shm_bytes_max: 256 << 20,
        }
    }
}

/// The minimum value of the process limit: the kernel accepts no smaller number as the highest pid of a namespace.
pub const PROCESSES_MIN: u64 = 301;

/// The name of the limit that has a minimum.
const PROCESSES: &str = "processes";

/// The name of the limit that is a time. Its earlier name is `cpu-seconds`.
pub const CPU_TIME: &str = "cpu-time";

impl CommandLimits {
    /// The names of the limits in the configuration, each with its description.
    pub const NAMES: [(&'static str, &'static str); 6] = [
        (PROCESSES, "processes and threads alive at once"),
        ("open-files", "open files per process"),
        ("file-bytes", "bytes of the largest file written"),
        (CPU_TIME, "CPU time per process, in seconds"),
        ("memory-bytes", "bytes of private writable memory per process"),
        ("shm-bytes", "bytes in the private /dev/shm"),
    ];

    /// Returns one limit by name, or `None` if there is no such limit.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.clone().slot(name).map(|slot| *slot)
    }

    /// Sets one limit by name.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), LimitError> {
        let slot = self.slot(name).ok_or_else(|| LimitError::Unknown(name.into()))?;
        if value == 0 {
            return Err(LimitError::Zero(name.into()));
        }
        if name == PROCESSES && value < PROCESSES_MIN {
            return Err(LimitError::TooSmall { name: name.into(), min: PROCESSES_MIN });
        }
        *slot = value;
        Ok(())
    }

    fn slot(&mut self, name: &str) -> Option<&mut u64> {
        match name {
            PROCESSES => Some(&mut self.processes_max),
            "open-files" => Some(&mut self.open_files_max),
            "file-bytes" => Some(&mut self.file_bytes_max),
            CPU_TIME | "cpu-seconds" => Some(&mut self.cpu_seconds_max),
            "memory-bytes" => Some(&mut self.memory_bytes_max),
            "shm-bytes" => Some(&mut self.shm_bytes_max),
            _ => None,
        }
    }
}

/// The reason why a limit cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// No limit has this name.
    #[error("unknown resource limit `{0}`; expected one of {names}", names = CommandLimits::NAMES.map(|(name, _)| name).join(", "))]
    Unknown(String),
    /// Contains the name of a limit that was set to zero.
    #[error("the resource limit `{0}` must be at least 1")]
    Zero(String),
    /// The limit cannot be enforced below its minimum.
    #[error(
        "the resource limit `{name}` must be at least {min}, the smallest value that the kernel enforces"
    )]
    TooSmall {
        /// The name of the limit.
        name: String,
        /// The minimum value that can be set.
        min: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_limit_can_be_set_and_read_back() {
        for name in CommandLimits::NAMES.map(|(name, _)| name).into_iter().chain(["cpu-seconds"]) {
            let mut limits = CommandLimits::default();
            limits.set(name, 4_000_000).unwrap();
            assert_eq!(limits.get(name), Some(4_000_000), "{name}");
        }
    }

    #[test]
    fn unknown_limit_names_and_zero_values_are_rejected() {
        let mut limits = CommandLimits::default();
        assert_eq!(limits.set("speed", 1), Err(LimitError::Unknown("speed".into())));
        assert_eq!(limits.set("open-files", 0), Err(LimitError::Zero("open-files".into())));
        let too_small = LimitError::TooSmall { name: "processes".into(), min: 301 };
        assert_eq!(limits.set("processes", 300), Err(too_small));
        assert_eq!(limits, CommandLimits::default(), "a rejected value leaves the limits unchanged");
        limits.set("processes", 301).unwrap();
    }
}
