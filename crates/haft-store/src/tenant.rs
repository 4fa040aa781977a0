//! The directory names of tenants.

use haft_core::digest::Digest;

/// Returns a name that is a single path component. If the tenant name has other characters, returns a digest of it, so
/// that no tenant can choose the directory of another.
pub fn directory_of(tenant: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if !tenant.is_empty() && tenant.len() <= 64 && tenant.bytes().all(is_plain) {
        return tenant.to_owned();
    }
    format!("_{}", Digest::of_text(tenant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_map_to_distinct_safe_directory_names() {
        let all = ["local", "Local", "../local", "a/b", "", ".", "_", "LOCAL", "a b"].map(directory_of);
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(all.iter().all(|name| !name.contains('/') && !name.contains('.')), "{all:?}");
        assert_eq!(all[0], "local");
    }
}
