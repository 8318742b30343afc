//! Which symbolic links are carried: those whose text stays inside the tree, whatever else is a link there.

use crate::tree::RelPath;

const MAX_TARGET: usize = 4095;

/// `..` may only lead the text. Then the first part climbs from a real directory, every further
/// component descends, and following other carried links on the way cannot leave the tree either.
pub(crate) fn stays_inside(link: &RelPath, target: &[u8]) -> bool {
    if target.is_empty() || target.len() > MAX_TARGET || target[0] == b'/' || target.contains(&0) {
        return false;
    }
    let mut climbed = 0;
    let mut descending = false;
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => (),
            b".." if descending => return false,
            b".." => climbed += 1,
            _ => descending = true,
        }
    }
    climbed < link.depth()
}

#[cfg(test)]
mod tests {
    use super::stays_inside;
    use crate::tree::RelPath;

    #[test]
    fn links_inside_are_kept_and_others_are_not() {
        let cases: [(&str, &str, bool); 14] = [
            ("a", "b", true),
            ("a", "./b/", true),
            ("node_modules/.bin/x", "../pkg/x", true),
            ("d/a", "..", true),
            ("d/a", "../b/c", true),
            ("a", "../b", false),
            ("a", "..", false),
            ("d/a", "../../b", false),
            ("a", "/etc/passwd", false),
            ("a", "", false),
            // Through the carried link `p/l -> ..` this would climb out of the tree.
            ("a", "p/l/../../x", false),
            ("d/a", "b/../../x", false),
            ("d/a", "x/..", false),
            ("d/e/a", ".././../b", true),
        ];
        for (link, target, inside) in cases {
            let link = RelPath::parse(link.as_bytes()).unwrap();
            assert_eq!(stays_inside(&link, target.as_bytes()), inside, "{link} -> {target}");
        }
    }
}
