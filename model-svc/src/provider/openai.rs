//! Chat completions over HTTPS, not streamed: one request per turn, to one configured endpoint. Redirects, proxies, retries
//! and anything an answer may not be are refused; what the provider writes in an error stays here.

mod classify;
mod endpoint;
mod headers;
mod names;
mod request;
mod response;

use std::fmt;
use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Response, StatusCode, redirect, retry};
use tokio::time::{Instant, timeout_at};

pub(crate) use endpoint::{Endpoint, NotAnEndpoint};
pub(crate) use request::MaxTokensField;

use super::Need;
use crate::finalize;
use crate::key::ProviderKey;
use crate::turn::{Answer, Failure, Kind, Turn, Usage};

const CONNECT: Duration = Duration::from_secs(5);
/// Below what providers keep a connection open for, so that a reused one is rarely found closed.
const POOL_IDLE: Duration = Duration::from_secs(15);
const MAX_REQUEST: usize = 4 * 1024 * 1024;
const MAX_RESPONSE: usize = 8 * 1024 * 1024;
const MAX_ERROR: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;

pub(crate) struct OpenAi {
    client: Client,
    settings: Settings,
}

/// One model at one endpoint.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) endpoint: Endpoint,
    pub(crate) key: Option<ProviderKey>,
    /// What the provider calls the model.
    pub(crate) upstream_model: String,
    /// For the whole request.
    pub(crate) timeout: Duration,
    pub(crate) max_output_tokens: u64,
    pub(crate) max_tokens_field: MaxTokensField,
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl OpenAi {
    pub(crate) fn new(settings: Settings) -> Result<Self, reqwest::Error> {
        let plaintext = settings.endpoint.is_plaintext();
        let builder = Client::builder()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .no_proxy()
            .referer(false)
            .https_only(!plaintext)
            .http1_max_headers(MAX_HEADERS)
            .connect_timeout(CONNECT)
            .timeout(settings.timeout)
            .pool_idle_timeout(POOL_IDLE);
        // A plaintext endpoint is loopback: no certificate of anyone is good there, and none has to be found on this host.
        let builder = if plaintext { builder.tls_certs_only([]) } else { builder };
        Ok(Self { client: builder.build()?, settings })
    }

    pub(super) fn need(&self, turn: &Turn) -> Need {
        let cap = self.settings.max_output_tokens;
        let most = match turn.max_output_tokens {
            0 => cap,
            asked => asked.min(cap),
        };
        Need { input: request::input_bound(turn), least: 1, most }
    }

    pub(super) async fn complete(
        &self,
        turn: &Turn,
        input: u64,
        output: u64,
    ) -> Result<Answer, Failure> {
        let reserved = Usage { prompt: input, completion: output, estimated: true };
        let names = names::Names::new(turn).ok_or_else(|| Failure::new(Kind::InvalidRequest))?;
        let body = request::body(turn, &self.settings, output)
            .filter(|body| body.len() <= MAX_REQUEST)
            .ok_or_else(|| Failure::new(Kind::InvalidRequest))?;
        let response = self
            .client
            .post(self.settings.endpoint.completions())
            .headers(self.headers()?)
            .body(body)
            .send()
            .await
            .map_err(|error| sent(&error, reserved))?;
        let answer = self.read(&turn.model, response, reserved).await?;
        Ok(names.restore(answer))
    }

    async fn read(
        &self,
        model: &str,
        mut response: Response,
        reserved: Usage,
    ) -> Result<Answer, Failure> {
        let request_id = headers::request_id(response.headers());
        let named = |failure: Failure| Failure { request_id: request_id.clone(), ..failure };
        let status = response.status();
        if status != StatusCode::OK {
            let retry_after = headers::retry_after(response.headers());
            let body = error_body(&mut response, self.settings.timeout).await;
            let failure = classify::http(status, &classify::evidence(&body));
            return Err(named(Failure { retry_after, ..failure }));
        }
        if !headers::is_json(response.headers()) {
            return Err(named(Failure::new(Kind::InvalidResponse).billed(reserved)));
        }
        let body = body(&mut response, MAX_RESPONSE).await.map_err(|failed| {
            named(match failed {
                Unread::TooLarge => Failure::new(Kind::InvalidResponse).billed(reserved),
                Unread::Broken(error) => sent(&error, reserved),
            })
        })?;
        match response::parse(model, &body) {
            response::Read::Answer(mut raw) => {
                raw.request_id = request_id;
                let estimate = response::estimate(&raw, reserved);
                finalize::finalize(raw, estimate)
            }
            response::Read::Error(evidence) => {
                Err(named(classify::in_band(&evidence).billed(reserved)))
            }
            response::Read::Invalid => {
                Err(named(Failure::new(Kind::InvalidResponse).billed(reserved)))
            }
        }
    }

    /// The key exists as a header only while its request does.
    fn headers(&self) -> Result<HeaderMap, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(key) = &self.settings.key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
                .map_err(|_| Failure::new(Kind::Auth))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }
}

/// A request that never reached the provider costs nothing; of any other nobody knows, so it costs what it could.
fn sent(error: &reqwest::Error, reserved: Usage) -> Failure {
    if error.is_connect() {
        return Failure::new(Kind::Transport);
    }
    let kind = if error.is_timeout() { Kind::Timeout } else { Kind::Transport };
    Failure::new(kind).billed(reserved)
}

enum Unread {
    TooLarge,
    Broken(reqwest::Error),
}

/// Counts what arrives; a declared length only lets it fail sooner.
async fn body(response: &mut Response, limit: usize) -> Result<Vec<u8>, Unread> {
    let declared =
        response.content_length().map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
    if declared > limit {
        return Err(Unread::TooLarge);
    }
    let mut body = Vec::with_capacity(declared);
    while let Some(chunk) = response.chunk().await.map_err(Unread::Broken)? {
        if body.len() + chunk.len() > limit {
            return Err(Unread::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The start of an error's body, as much as there is: it only refines what the status has said.
async fn error_body(response: &mut Response, limit: Duration) -> Vec<u8> {
    let until = Instant::now() + limit.min(CONNECT);
    let mut body = Vec::new();
    while let Ok(Ok(Some(chunk))) = timeout_at(until, response.chunk()).await {
        let room = MAX_ERROR - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == MAX_ERROR {
            break;
        }
    }
    body
}
