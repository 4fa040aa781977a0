//! Drops every capability and checks that none is left.

use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use super::stage::{InStage, StageError};

/// Gives up all capabilities permanently. With them, a command that runs as root could remount every read-only mount as
/// writable.
pub(super) fn drop_all() -> Result<(), StageError> {
    for capability in CapabilitySet::all().iter() {
        match thread::remove_capability_from_bounding_set(capability) {
            // Ignore the error: the kernel does not have this capability, or does not let the process drop it. In both
            // cases, `no_new_privs` and the check below still apply.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error).stage("capabilities", "dropping the bounding capabilities"),
        }
    }
    thread::clear_ambient_capability_set().stage("capabilities", "clearing the ambient capabilities")?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    thread::set_capabilities(None, none).stage("capabilities", "dropping all capabilities")?;
    let left = thread::capabilities(None).stage("capabilities", "reading the capabilities back")?;
    if left.effective.is_empty() && left.permitted.is_empty() && left.inheritable.is_empty() {
        Ok(())
    } else {
        Err(StageError::new("capabilities", "some capabilities remain after haft dropped all of them"))
    }
}
