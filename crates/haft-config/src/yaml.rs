//! Reads YAML with the booleans of YAML 1.2: `true` and `false`. In YAML 1.1, `y`, `n`, `yes`, `no`, `on` and `off` are
//! booleans too, so that `required: [n]` would be a list with `false`.

use serde::de::DeserializeOwned;

pub(crate) fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn yaml_booleans_are_only_true_and_false() {
        let read: Value = from_str("[y, n, yes, no, on, off, true, false]").unwrap();
        assert_eq!(read, json!(["y", "n", "yes", "no", "on", "off", true, false]));
    }
}
