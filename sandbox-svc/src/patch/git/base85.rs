//! The lines of git's binary patch: at most 52 bytes each, their number as a letter, then four bytes as five digits
//! to the base of 85. It only encodes.

const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
const LINE: usize = 52;

pub(super) fn encode_lines(text: &mut String, bytes: &[u8]) {
    let letters = (b'A'..=b'Z').chain(b'a'..=b'z');
    let letters: Vec<char> = letters.map(char::from).collect();
    for line in bytes.chunks(LINE) {
        // A chunk is never empty.
        text.extend(letters.get(line.len().saturating_sub(1)));
        for group in line.chunks(4) {
            let mut four = [0; 4];
            four[..group.len()].copy_from_slice(group);
            text.extend(digits(u32::from_be_bytes(four)));
        }
        text.push('\n');
    }
}

fn digits(mut number: u32) -> [char; 5] {
    let mut digits = ['0'; 5];
    for digit in digits.iter_mut().rev() {
        *digit = char::from(DIGITS[(number % 85) as usize]);
        number /= 85;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::encode_lines;

    fn encoded(bytes: &[u8]) -> String {
        let mut text = String::new();
        encode_lines(&mut text, bytes);
        text
    }

    #[test]
    fn a_line_says_how_many_bytes_it_has() {
        assert_eq!(encoded(b""), "");
        assert_eq!(encoded(&[0; 4]), "D00000\n");
        assert_eq!(encoded(&[0xff; 4]), "D|NsC0\n");
        assert_eq!(encoded(&[0; 1]), "A00000\n");
        let long = encoded(&[0; 53]);
        assert_eq!(long, format!("z{}\nA00000\n", "00000".repeat(13)));
        assert!(encoded(&[0; 27]).starts_with('a'));
    }
}
