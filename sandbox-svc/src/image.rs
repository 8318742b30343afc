//! Names of images, as they may stand in a request to the engine: no path can be spelled with one.

/// `name[:tag]`, `name@sha256:…` or an image id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageName(String);

impl ImageName {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| digest.parse::<event::Digest>().is_err()) {
            return None;
        }
        let is_id = digest.is_none() && name.parse::<event::Digest>().is_ok();
        let plain = |component: &str| {
            component.starts_with(|first: char| first.is_ascii_alphanumeric())
                && !component.contains("..")
                && component
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte))
        };
        (text.len() <= 255 && (is_id || name.split('/').all(plain))).then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::ImageName;

    #[test]
    fn a_name_never_leaves_its_place_in_a_path() {
        let id = event::Digest::of(b"x").to_string();
        for text in ["harness/busybox:1", "busybox", &id, &format!("a/b@{id}")] {
            assert!(ImageName::parse(text).is_some(), "{text}");
        }
        for text in
            ["", "../x", "a/../b", "/a", "a//b", "a/", "a?b", "a%2fb", "a@b", "a b", ".a", "a#b"]
        {
            assert!(ImageName::parse(text).is_none(), "{text}");
        }
    }
}
