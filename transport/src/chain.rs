//! An error and its causes on one line; decides nothing.

use std::{error::Error, fmt, io};

/// Displays an error followed by each of its causes, separated by `: `.
#[derive(Debug)]
pub struct Chain<'a, E: ?Sized>(pub &'a E);

impl<E: Error + ?Sized> fmt::Display for Chain<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = self.0.to_string();
        f.write_str(&last)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Wrappers that pass their cause's text on as their own would say it twice.
            if text != last {
                write!(f, ": {text}")?;
            }
            last = text;
            cause = error.source();
        }
        Ok(())
    }
}

/// The first error of type `T` among `error` and its causes, also inside the wrapper that `io::Error` puts around one.
pub(crate) fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot start")]
    struct Outer(#[source] io::Error);

    #[derive(Debug, PartialEq, thiserror::Error)]
    #[error("the key is broken")]
    struct Inner;

    #[test]
    fn an_error_and_its_causes_are_one_line_and_no_text_stands_twice() {
        assert_eq!(
            Chain(&Outer(io::Error::other(Inner))).to_string(),
            "cannot start: the key is broken"
        );
        assert_eq!(Chain(&Inner).to_string(), "the key is broken");
    }

    #[test]
    fn a_cause_is_found_inside_the_wrapper_that_hides_it() {
        assert_eq!(find::<Inner>(&Outer(io::Error::other(Inner))), Some(&Inner));
        assert_eq!(find::<Inner>(&Outer(io::ErrorKind::NotFound.into())), None);
    }
}
