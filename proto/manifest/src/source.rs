//! From the bytes of a policy file to its tree, or the reason there is none. It knows no keys.

use crate::fields::Reader;
use crate::tree::{self, Node, NotYaml, Place};

const MAX_BYTES: usize = 256 * 1024;

/// The tree; a fault is told to the reader.
pub(crate) fn tree(reader: &mut Reader<'_>, bytes: &[u8], required: &str) -> Option<Node> {
    let parsed = text(bytes, required)
        .and_then(|text| tree::parse(text).map_err(|NotYaml { place, what }| (place, what)));
    match parsed {
        Ok(tree) => Some(tree),
        Err((place, what)) => {
            reader.fault(place, what);
            None
        }
    }
}

fn text<'b>(bytes: &'b [u8], required: &str) -> Result<&'b str, (Place, String)> {
    if bytes.len() > MAX_BYTES {
        return Err((Place::START, format!("larger than {MAX_BYTES} bytes; shorten it")));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        let place = Place { line: line as u64 + 1, column: 1 };
        (place, "not UTF-8; save the file as UTF-8".to_owned())
    })?;
    if text.starts_with('\u{feff}') {
        let what = "starts with a byte order mark; save the file without it";
        return Err((Place::START, what.to_owned()));
    }
    if text.trim().is_empty() {
        return Err((Place::START, format!("empty; write {required}")));
    }
    Ok(text)
}
