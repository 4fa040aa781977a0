//! Writes JSON fields in the order of the calls. JSON that is already encoded is inserted byte for byte.

use serde::Serialize;

/// Writes one object.
pub(crate) fn object(out: &mut Vec<u8>, write: impl FnOnce(&mut ObjectWriter<'_>)) {
    out.push(b'{');
    write(&mut ObjectWriter { out, empty: true });
    out.push(b'}');
}

/// Writes one array.
pub(crate) fn array(out: &mut Vec<u8>, write: impl FnOnce(&mut ArrayWriter<'_>)) {
    out.push(b'[');
    write(&mut ArrayWriter { out, empty: true });
    out.push(b']');
}

/// Writes a serializable value. This cannot fail, because keys are strings and the target is memory.
pub(crate) fn value(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let before = out.len();
    if serde_json::to_writer(&mut *out, value).is_err() {
        out.truncate(before);
        out.extend_from_slice(b"null");
    }
}

/// Returns one object as text.
pub(crate) fn text_of(write: impl FnOnce(&mut ObjectWriter<'_>)) -> String {
    let mut out = Vec::new();
    object(&mut out, write);
    String::from_utf8(out).unwrap_or_default()
}

/// A JSON object that is being written.
pub(crate) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl ObjectWriter<'_> {
    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        value(self.out, key);
        self.out.push(b':');
        self.out
    }

    pub(crate) fn put(&mut self, key: &str, field: &(impl Serialize + ?Sized)) {
        value(self.key(key), field);
    }

    pub(crate) fn put_some(&mut self, key: &str, field: Option<&(impl Serialize + ?Sized)>) {
        if let Some(field) = field {
            self.put(key, field);
        }
    }

    /// Writes a field whose value is encoded JSON. `json` must be valid JSON.
    pub(crate) fn raw(&mut self, key: &str, json: &[u8]) {
        self.raw_pieces(key, &[json]);
    }

    /// Writes a field whose value is the concatenation of these byte strings, which must be valid JSON.
    pub(crate) fn raw_pieces(&mut self, key: &str, pieces: &[&[u8]]) {
        let out = self.key(key);
        for piece in pieces {
            out.extend_from_slice(piece);
        }
    }

    pub(crate) fn object(&mut self, key: &str, write: impl FnOnce(&mut ObjectWriter<'_>)) {
        object(self.key(key), write);
    }

    pub(crate) fn array(&mut self, key: &str, write: impl FnOnce(&mut ArrayWriter<'_>)) {
        array(self.key(key), write);
    }
}

/// A JSON array that is being written.
pub(crate) struct ArrayWriter<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl ArrayWriter<'_> {
    fn next(&mut self) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        self.out
    }

    pub(crate) fn object(&mut self, write: impl FnOnce(&mut ObjectWriter<'_>)) {
        object(self.next(), write);
    }

    /// Appends encoded JSON. `json` must be valid JSON.
    pub(crate) fn raw(&mut self, json: &[u8]) {
        self.next().extend_from_slice(json);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_writer_keeps_field_order_and_raw_bytes() {
        let text = text_of(|object| {
            object.put("b", "say \"hi\"\n");
            object.raw("a", br#"{"x": 1.0}"#);
            object.array("list", |list| {
                list.raw(b"1");
                list.object(|_| {});
            });
            object.put_some("none", None::<&str>);
        });
        assert_eq!(text, r#"{"b":"say \"hi\"\n","a":{"x": 1.0},"list":[1,{}]}"#);
    }
}
