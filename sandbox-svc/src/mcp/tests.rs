//! The conversation with servers that keep the protocol and with servers that do not, over streams in memory.

pub(crate) mod peer;

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::time::Instant;
use transport::{CancellationToken, TaskTracker};

use super::definition::BadTool;
use super::{Broken, Client, Definition, Failure, Limits, told};

/// The other side: it reads requests and writes whatever it likes.
struct Fake {
    lines: tokio::io::Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    writer: tokio::io::WriteHalf<DuplexStream>,
}

impl Fake {
    /// The next message with that method; what comes before it is passed over.
    async fn hear(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await;
            if message["method"] == method {
                return message;
            }
        }
    }

    async fn next(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().expect("the client is still there");
        serde_json::from_str(&line).unwrap()
    }

    async fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        // A client that is gone reads nothing.
        let _gone = self.writer.write_all(bytes).await;
    }

    async fn answer(&mut self, request: &Value, result: Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    async fn greet(&mut self) {
        let request = self.hear("initialize").await;
        let version = request["params"]["protocolVersion"].clone();
        let result = json!({
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "fake", "version": "1"},
        });
        self.answer(&request, result).await;
        self.hear("notifications/initialized").await;
    }
}

struct Talk {
    client: Client,
    fake: Fake,
    cancel: CancellationToken,
}

fn limits(millis: u64) -> Limits {
    Limits { until: Instant::now() + Duration::from_millis(millis), output: 1 << 20 }
}

fn streams() -> (DuplexStream, Fake) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(theirs);
    (ours, Fake { lines: BufReader::new(reader).lines(), writer })
}

async fn open(ours: DuplexStream, limits: Limits) -> Result<Client, Failure> {
    let (reader, writer) = tokio::io::split(ours);
    let (cancel, tracker) = (CancellationToken::new(), TaskTracker::new());
    Client::open(reader, writer, limits, &cancel, &tracker).await
}

async fn talk() -> Talk {
    let (ours, mut fake) = streams();
    let (client, ()) = tokio::join!(open(ours, limits(10_000)), fake.greet());
    Talk { client: client.unwrap(), fake, cancel: CancellationToken::new() }
}

fn tool(name: &str, description: &str, read_only: bool) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": read_only},
    })
}

impl Talk {
    async fn listed(&mut self, pages: Vec<Value>) -> Result<Vec<Definition>, Failure> {
        let served = async {
            for page in pages {
                let request = self.fake.hear("tools/list").await;
                self.fake.answer(&request, page).await;
            }
        };
        let (listed, ()) = tokio::join!(self.client.tools(limits(10_000), &self.cancel), served);
        listed
    }

    /// What a call comes to when the server writes these bytes once it has heard it.
    async fn broken_by(mut self, bytes: &[u8]) -> Failure {
        let served = async {
            self.fake.hear("tools/call").await;
            self.fake.write(bytes).await;
        };
        let call = self.client.call("t", Map::new(), limits(10_000), &self.cancel);
        let (called, ()) = tokio::join!(call, served);
        called.unwrap_err()
    }
}

#[tokio::test]
async fn a_server_is_greeted_its_tools_are_listed_and_one_is_called() {
    let mut talk = talk().await;
    let pages = vec![
        json!({"tools": [tool("write", "Writes.", false)], "nextCursor": "2"}),
        json!({"tools": [tool("read", "Reads.", true)]}),
    ];
    let listed = talk.listed(pages).await.unwrap();
    let names: Vec<_> = listed.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["read", "write"]);
    assert_eq!(listed[0].hints, [("readOnlyHint".to_owned(), true)].into());
    assert_eq!(listed[0].description.as_deref(), Some("Reads."));

    let arguments = Map::from_iter([("note".to_owned(), json!("a"))]);
    let served = async {
        let request = talk.fake.hear("tools/call").await;
        assert_eq!(request["params"]["name"], "read");
        assert_eq!(request["params"]["arguments"], json!({"note": "a"}));
        let content = json!([{"type": "text", "text": "hello"}]);
        talk.fake.answer(&request, json!({"content": content})).await;
    };
    let call = talk.client.call("read", arguments, limits(10_000), &talk.cancel);
    let (called, ()) = tokio::join!(call, served);
    let expected = json!({
        "server": "s", "tool": "read", "untrusted": true, "isError": false,
        "content": [{"type": "text", "text": "hello", "bytes": 5}],
    });
    assert_eq!(told("s", "read", &called.unwrap()), expected);
    talk.client.close().await;
}

#[tokio::test]
async fn what_a_server_asks_of_its_client_is_refused() {
    let mut talk = talk().await;
    let served = async {
        let call = talk.fake.hear("tools/call").await;
        for method in ["sampling/createMessage", "roots/list", "elicitation/create", "x/y", "ping"]
        {
            talk.fake.say(&json!({"jsonrpc": "2.0", "id": method, "method": method})).await;
            let answer = talk.fake.next().await;
            assert_eq!(answer["id"], method);
            let code = answer["error"]["code"].as_i64();
            let expected = (method != "ping").then_some(-32601);
            assert_eq!((code, answer.get("result").is_some()), (expected, method == "ping"));
        }
        talk.fake.answer(&call, json!({"content": []})).await;
    };
    let call = talk.client.call("t", Map::new(), limits(10_000), &talk.cancel);
    let (called, ()) = tokio::join!(call, served);
    assert!(called.unwrap().content.is_empty());
}

#[tokio::test]
async fn a_line_that_is_no_message_of_the_protocol_ends_the_conversation() {
    for line in [
        "Starting up...\n",
        "\n",
        "[]\n",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"result\":{}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1}\n",
        "\u{ff}\n",
    ] {
        let failure = talk().await.broken_by(line.as_bytes()).await;
        assert_eq!(failure, Failure::Broken(Broken::NotProtocol), "{line}");
    }
    let failure = talk().await.broken_by(b"\xff\xfe\n").await;
    assert_eq!(failure, Failure::Broken(Broken::NotProtocol));
}

#[tokio::test]
async fn a_flood_is_read_only_as_far_as_the_call_allows() {
    let note = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n";
    let failure = talk().await.broken_by(note.repeat(40_000).as_bytes()).await;
    assert_eq!(failure, Failure::Broken(Broken::TooMuch));

    let (ours, mut fake) = streams();
    let wide = Limits { output: 1 << 30, ..limits(10_000) };
    let line = vec![b'x'; 2 << 20];
    let (opened, ()) = tokio::join!(open(ours, wide), fake.write(&line));
    assert_eq!(opened.unwrap_err(), Failure::Broken(Broken::LineTooLong));
}

#[tokio::test]
async fn a_server_that_asks_and_never_reads_is_given_up() {
    let (ours, mut fake) = streams();
    let asked = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n".repeat(2_000);
    let (opened, ()) = tokio::join!(open(ours, limits(10_000)), fake.write(asked.as_bytes()));
    assert_eq!(opened.unwrap_err(), Failure::Broken(Broken::Flooding));
}

#[tokio::test]
async fn silence_ends_with_the_clock_and_the_request_is_taken_back() {
    let mut talk = talk().await;
    let listed = talk.client.tools(limits(50), &talk.cancel).await;
    assert_eq!(listed.unwrap_err(), Failure::TimedOut("tools/list"));
    let request = talk.fake.hear("tools/list").await;
    let taken_back = talk.fake.hear("notifications/cancelled").await;
    assert_eq!(taken_back["params"]["requestId"], request["id"]);

    let (ours, _silent) = streams();
    assert_eq!(open(ours, limits(50)).await.unwrap_err(), Failure::TimedOut("initialize"));
}

#[tokio::test]
async fn a_call_that_is_stopped_is_taken_back() {
    let mut talk = talk().await;
    let cancel = talk.cancel.clone();
    let served = async {
        let request = talk.fake.hear("tools/call").await;
        cancel.cancel();
        let taken_back = talk.fake.hear("notifications/cancelled").await;
        assert_eq!(taken_back["params"]["requestId"], request["id"]);
    };
    let call = talk.client.call("t", Map::new(), limits(10_000), &talk.cancel);
    let (called, ()) = tokio::join!(call, served);
    assert_eq!(called.unwrap_err(), Failure::Canceled);
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_fails_it_and_every_later_one() {
    let Talk { client, mut fake, cancel } = talk().await;
    let served = async {
        fake.hear("tools/call").await;
        drop(fake);
    };
    let (called, ()) = tokio::join!(client.call("t", Map::new(), limits(10_000), &cancel), served);
    assert_eq!(called.unwrap_err(), Failure::Broken(Broken::Closed));
    let again = client.call("t", Map::new(), limits(10_000), &cancel).await;
    assert_eq!(again.unwrap_err(), Failure::Broken(Broken::Closed));
}

#[tokio::test]
async fn a_refusal_is_the_servers_own_words_cut() {
    let mut talk = talk().await;
    let served = async {
        let request = talk.fake.hear("tools/call").await;
        let error = json!({"code": -1, "message": "n".repeat(1_000)});
        talk.fake.say(&json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
    };
    let call = talk.client.call("t", Map::new(), limits(10_000), &talk.cancel);
    let (called, ()) = tokio::join!(call, served);
    let expected = Failure::Refused { step: "tools/call", message: "n".repeat(300) };
    assert_eq!(called.unwrap_err(), expected);
}

#[tokio::test]
async fn every_word_of_a_definition_is_in_its_digest() {
    let mut talk = talk().await;
    let mut digest = async |tool: Value| {
        let listed = talk.listed(vec![json!({ "tools": [tool] })]).await.unwrap();
        listed[0].digest
    };
    let first = digest(tool("a", "Reads.", true)).await;
    assert_eq!(digest(tool("a", "Reads.", true)).await, first);
    let mut schema = tool("a", "Reads.", true);
    schema["inputSchema"]["properties"] = json!({"path": {"type": "string"}});
    let mut title = tool("a", "Reads.", true);
    title["title"] = json!("Other");
    let others = [tool("a", "Reads!", true), tool("a", "Reads.", false), schema, title];
    for other in others {
        assert_ne!(digest(other.clone()).await, first, "{other}");
    }
}

#[tokio::test]
async fn a_list_that_cannot_be_relied_on_is_refused() {
    let twice = json!({"tools": [tool("a", "one", true), tool("a", "two", false)]});
    let failure = talk().await.listed(vec![twice]).await.unwrap_err();
    assert_eq!(failure, Failure::Tool(BadTool::Twice));
    let large = json!({"tools": [tool("a", &"x".repeat(40 << 10), true)]});
    let failure = talk().await.listed(vec![large]).await.unwrap_err();
    assert_eq!(failure, Failure::Tool(BadTool::TooLarge));
    let endless = json!({"tools": [], "nextCursor": "again"});
    let failure = talk().await.listed(vec![endless; 20]).await.unwrap_err();
    assert_eq!(failure, Failure::TooMany);
}

#[test]
fn what_is_no_text_is_told_by_kind_and_size() {
    let result = json!({
        "content": [
            {"type": "text", "text": "é".repeat(40 << 10)},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "text", "text": "late"},
        ],
        "structuredContent": {"n": 1},
        "isError": true,
    });
    let told = told("s", "t", &serde_json::from_value(result).unwrap());
    let first = told["content"][0]["text"].as_str().unwrap();
    assert!(first.len() < (64 << 10) + 100 && first.contains("bytes left out"), "{}", first.len());
    assert_eq!(told["content"][1]["type"], "image");
    assert!(told["content"][1].get("data").is_none());
    assert_eq!(told["content"][2], json!({"type": "text", "bytes": 4}));
    assert_eq!((&told["structured"], &told["isError"]), (&json!({"n": 1}), &json!(true)));
}
