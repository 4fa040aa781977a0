//! Drops every capability and checks that none is left.

use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use super::stage::{InStage, StageError};

/// Gives up all capabilities for good. With them, a command run as root could remount and undo every read-only mount.
pub(super) fn drop_all() -> Result<(), StageError> {
    for capability in CapabilitySet::all().iter() {
        match thread::remove_capability_from_bounding_set(capability) {
            // This kernel does not know the capability, or we may not drop it: no_new_privs and the check below hold
            // either way.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(error) => return Err(error).stage("capabilities", "dropping the bounding set"),
        }
    }
    thread::clear_ambient_capability_set().stage("capabilities", "clearing the ambient set")?;
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
        Err(StageError::new("capabilities", "some capabilities are left after dropping all"))
    }
}
