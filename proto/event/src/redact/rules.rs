//! The rules for text: what a credential looks like, and what stands where one was. Shapes and frames only; names are in `key`.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::assigned;

/// A rule that matched, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) rule: &'static str,
    pub(super) count: u32,
}

/// Where a credential stands, and which rule says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) at: Range<usize>,
    pub(super) rule: &'static str,
}

/// Tokens by shape. Lengths are minima: what follows in the same alphabet belongs to the token.
const SHAPES: &[(&str, &str)] = &[
    ("github", r"gh[pousr]_[0-9A-Za-z]{36,}|github_pat_[0-9A-Za-z_]{60,}"),
    ("gitlab", r"gl(?:pat|rt|dt|ptt|cbt)-[0-9A-Za-z_.\-]{20,}"),
    ("npm", r"npm_[0-9A-Za-z]{36,}"),
    ("pypi", r"pypi-[0-9A-Za-z_\-]{80,}"),
    ("aws", r"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16,}"),
    ("slack", r"xox[abpre]-[0-9A-Za-z\-]{20,}|xapp-[0-9A-Za-z\-]{20,}"),
    ("google", r"AIza[0-9A-Za-z_\-]{35,}|ya29\.[0-9A-Za-z_\-]{24,}|GOCSPX-[0-9A-Za-z_\-]{24,}"),
    ("stripe", r"[sr]k_(?:live|test)_[0-9A-Za-z]{18,}|whsec_[0-9A-Za-z]{18,}"),
    ("huggingface", r"hf_[A-Za-z]{34,}"),
    ("jwt", r"eyJ[0-9A-Za-z_\-]{8,}\.[0-9A-Za-z_\-]{8,}(?:\.[0-9A-Za-z_\-]*)?"),
    ("harness", r"hns_[0-9A-Za-z]{8}_[0-9A-Za-z]{40,}(?:_[0-9A-Za-z]+)?"),
    ("groq", r"gsk_[0-9A-Za-z]{30,}"),
    ("xai", r"xai-[0-9A-Za-z]{30,}"),
    ("sendgrid", r"SG\.[0-9A-Za-z_\-]{20,}\.[0-9A-Za-z_\-]{40,}"),
    ("vault", r"hv[sb]\.[0-9A-Za-z_\-]{24,}"),
    ("docker", r"dckr_pat_[0-9A-Za-z_\-]{27,}"),
    ("grafana", r"glsa_[0-9A-Za-z]{32,}_[0-9a-f]{8,}"),
    ("age", r"AGE-SECRET-KEY-1[0-9A-Z]{58,}"),
    ("azure", r"[0-9A-Za-z]{3}[0-9]Q~[0-9A-Za-z_.~\-]{31,}"),
    ("telegram", r"[0-9]{8,10}:AA[0-9A-Za-z_\-]{30,}"),
    ("sk", r"sk-[0-9A-Za-z_\-]{12,}"),
];

/// A pattern that does not compile withholds every text whole, so that the mistake cannot let anything through;
/// a test compiles them all.
pub(super) fn compiled(pattern: &str) -> Option<Regex> {
    Regex::new(pattern).ok()
}

/// All shapes at once, each in its own group, after anything but a letter or digit (or an escaped such).
static SHAPE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let groups: Vec<String> = SHAPES.iter().map(|(_, pattern)| format!("({pattern})")).collect();
    compiled(&format!("(?:^|[^0-9A-Za-z]|%[0-9A-Fa-f]{{2}})(?:{})", groups.join("|")))
});

static PRIVATE_KEY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let label = "(?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----";
    compiled(&format!(r"(?s)-----BEGIN {label}.*?(?:-----END {label}|\z)"))
});

/// What is public by design and full of letters at random; in its one form, so that nothing else fits in.
static PUBLIC: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let label = "(?:CERTIFICATE|PUBLIC KEY)-----";
    let line = "[0-9A-Za-z+/]";
    compiled(&format!(
        "-----BEGIN {label}\n(?:{line}{{64}}\n)*{line}{{1,64}}={{0,2}}\n-----END {label}"
    ))
});

static BEARER: LazyLock<Option<Regex>> =
    LazyLock::new(|| compiled(r"(?i)\bbearer(?:[ \t]+|%20)([0-9A-Z._~+/=\-]{12,})"));

static AUTHORIZATION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compiled(concat!(
        r#"(?i)\b(?:proxy-)?authorization["'\\]*\s*[:=]\s*["'\\]*"#,
        r#"(?:(?:basic|bearer|token|digest)[ \t]+)?([^\s"'\\][^\r\n"'\\]*)"#
    ))
});

static COOKIE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compiled(r#"(?i)\b(?:set-)?cookie["'\\]*\s*:\s*["'\\]*([^\s"'\\][^\r\n"'\\]*)"#)
});

static USERINFO: LazyLock<Option<Regex>> =
    LazyLock::new(|| compiled(r#"[A-Za-z][0-9A-Za-z+.\-]*://([^\s/"'<>?#]*)@"#));

static QUERY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compiled(r#"(?i)[?&](?:sig|signature|x-amz-signature|access_token|token|key)=([^&\s#"'<>\\]+)"#)
});

static INVISIBLE: LazyLock<Option<Regex>> =
    LazyLock::new(|| compiled("\u{1b}\\[[0-9;?]*[ -/]*[@-~]|[\u{200b}-\u{200d}\u{2060}\u{feff}]"));

pub(super) fn placeholder(rule: &str) -> String {
    format!("[REDACTED:{rule}]")
}

/// Only a complete placeholder counts as redacted; a text that merely begins like one does not.
pub(super) fn is_placeholder(text: &str) -> bool {
    text.strip_prefix("[REDACTED")
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|rest| rest.is_empty() || rest.strip_prefix(':').is_some_and(is_rule))
}

fn is_rule(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// One round of all rules over a text; None when nothing is found.
pub(super) fn apply(text: &str) -> Option<(String, Vec<Hit>)> {
    let open = spans(text);
    let Some(plain) = Plain::of(text) else { return replace(text, open) };
    let mut all = plain.spans();
    if all == open {
        return replace(text, open);
    }
    // Characters that show nothing must not hide a credential: where they do, the text is kept without them.
    all.extend(open);
    replace(text, all).map(|(safe, hits)| (Plain::of(&safe).map_or(safe, |plain| plain.text), hits))
}

/// A text without the characters that show nothing, and where each of its bytes came from.
struct Plain {
    text: String,
    from: Vec<usize>,
}

impl Plain {
    /// None when every character shows.
    fn of(text: &str) -> Option<Self> {
        let mut plain = Self { text: String::new(), from: Vec::new() };
        let mut at = 0;
        for hidden in INVISIBLE.as_ref()?.find_iter(text) {
            plain.keep(text, at..hidden.start());
            at = hidden.end();
        }
        plain.keep(text, at..text.len());
        (plain.text.len() < text.len()).then_some(plain)
    }

    fn keep(&mut self, text: &str, range: Range<usize>) {
        self.text.push_str(&text[range.clone()]);
        self.from.extend(range);
    }

    /// What the rules find, placed in the original text.
    fn spans(&self) -> Vec<Span> {
        let place = |Span { at, rule }: Span| {
            let start = *self.from.get(at.start)?;
            let end = self.from.get(at.end.checked_sub(1)?)? + 1;
            Some(Span { at: start..end, rule })
        };
        spans(&self.text).into_iter().filter_map(place).collect()
    }
}

fn replace(text: &str, found: Vec<Span>) -> Option<(String, Vec<Hit>)> {
    let spans = merged(found);
    if spans.is_empty() {
        return None;
    }
    let mut safe = String::with_capacity(text.len());
    let mut hits = Vec::new();
    let mut from = 0;
    for Span { at, rule } in spans {
        safe.push_str(&text[from..at.start]);
        safe.push_str(&placeholder(rule));
        from = at.end;
        hits.push(Hit { rule, count: 1 });
    }
    safe.push_str(&text[from..]);
    Some((safe, hits))
}

fn spans(text: &str) -> Vec<Span> {
    let mut spans = shapes(text);
    group(&PRIVATE_KEY, "pem", text, 0, |_| true, &mut spans);
    group(
        &BEARER,
        "bearer",
        text,
        1,
        |value| value.bytes().any(|byte| byte.is_ascii_digit()),
        &mut spans,
    );
    group(&AUTHORIZATION, "header", text, 1, assigned::is_value, &mut spans);
    group(&COOKIE, "header", text, 1, assigned::is_value, &mut spans);
    group(&QUERY, "query", text, 1, assigned::is_value, &mut spans);
    userinfo(text, &mut spans);
    assigned::find(text, &mut spans);
    spare_public(text, &mut spans);
    spans
}

/// Every match of the rule's group that `accept` takes for a credential.
fn group(
    rule: &LazyLock<Option<Regex>>,
    name: &'static str,
    text: &str,
    group: usize,
    accept: fn(&str) -> bool,
    spans: &mut Vec<Span>,
) {
    let Some(regex) = rule.as_ref() else {
        return spans.push(Span { at: 0..text.len(), rule: name });
    };
    for found in regex.captures_iter(text) {
        if let Some(value) = found.get(group)
            && accept(value.as_str().trim_end())
        {
            spans.push(Span {
                at: value.start()..value.start() + value.as_str().trim_end().len(),
                rule: name,
            });
        }
    }
}

pub(super) fn tokens(text: &str) -> Vec<(Range<usize>, &'static str)> {
    shapes(text).into_iter().map(|Span { at, rule }| (at, rule)).collect()
}

fn shapes(text: &str) -> Vec<Span> {
    let Some(regex) = SHAPE.as_ref() else {
        return vec![Span { at: 0..text.len(), rule: "shape" }];
    };
    let mut spans = Vec::new();
    for found in regex.captures_iter(text) {
        let hit = SHAPES
            .iter()
            .enumerate()
            .find_map(|(index, (rule, _))| Some((*rule, found.get(index + 1)?)));
        if let Some((rule, token)) = hit
            && (rule != "sk"
                || token.as_str()[3..]
                    .bytes()
                    .any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase()))
        {
            spans.push(Span { at: token.range(), rule });
        }
    }
    spans
}

/// A certificate is not a credential, whatever its letters look like.
fn spare_public(text: &str, spans: &mut Vec<Span>) {
    let Some(public) = PUBLIC.as_ref().filter(|_| !spans.is_empty()) else { return };
    let blocks: Vec<Range<usize>> = public.find_iter(text).map(|block| block.range()).collect();
    spans.retain(|span| {
        !blocks.iter().any(|block| block.start <= span.at.start && span.at.end <= block.end)
    });
}

/// The password of `scheme://user:password@`, or all of an opaque `scheme://token@`.
fn userinfo(text: &str, spans: &mut Vec<Span>) {
    let Some(regex) = USERINFO.as_ref() else {
        return spans.push(Span { at: 0..text.len(), rule: "url" });
    };
    for found in regex.captures_iter(text) {
        let Some(info) = found.get(1) else { continue };
        let at = match info.as_str().split_once(':') {
            Some((user, _)) => info.start() + user.len() + 1..info.end(),
            None if info.len() >= 12 => info.range(),
            None => continue,
        };
        if assigned::is_value(&text[at.clone()]) {
            spans.push(Span { at, rule: "url" });
        }
    }
}

fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| (span.at.start, std::cmp::Reverse(span.at.end)));
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match out.last_mut() {
            Some(last) if span.at.start < last.at.end => last.at.end = last.at.end.max(span.at.end),
            _ => out.push(span),
        }
    }
    out
}
