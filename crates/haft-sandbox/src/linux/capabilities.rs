//! Dropping every capability, and making sure of it.

use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use super::stage::{Failure, InStage};

/// Gives up all capabilities for good. As root without this, a remount would undo every read-only mount.
pub(super) fn drop_all() -> Result<(), Failure> {
    for capability in CapabilitySet::all().iter() {
        match thread::remove_capability_from_bounding_set(capability) {
            // Unknown to this kernel, or not ours to drop: no_new_privs and the check below hold either way.
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
    thread::set_capabilities(None, none).stage("capabilities", "dropping them")?;
    let left = thread::capabilities(None).stage("capabilities", "reading them back")?;
    if left.effective.is_empty() && left.permitted.is_empty() && left.inheritable.is_empty() {
        Ok(())
    } else {
        Err(Failure::new("capabilities", "some are left after dropping all"))
    }
}
