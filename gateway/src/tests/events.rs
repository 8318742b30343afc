//! Events reach a client of the project's own kind byte for byte.
use acp::{NewParams, NewSession, Prompt, PromptParams, PromptStatus, Respond, RespondParams};
use event::{CallOutput, Data, MessageDelta, OutputStream, ToolCall, id::CallId};
use serde_json::json;

use super::mesh::Mesh;
use super::within;

#[tokio::test]
async fn a_run_from_prompt_to_outcome_with_every_byte_as_it_was_recorded() {
    let mesh = Mesh::start().await;
    let (client, mut events) = mesh.client("ada").await;
    let workspace = acp::Text::new("demo").expect("fits");
    let params = NewParams { workspace, task_id: None, model: None, on_disconnect: None };
    let session = within(client.call::<NewSession>(params)).await.expect("opened").session_id;
    let content = acp::Text::new("fix it").expect("fits");
    let params = PromptParams {
        session_id: session.into(),
        content,
        max_model_tokens: None,
        max_tool_calls: None,
    };

    let run = async {
        let prompted = client.call::<Prompt>(params).await.expect("answered");
        assert_eq!(
            (prompted.status, prompted.final_text.as_str(), prompted.usage.total()),
            (PromptStatus::Completed, "fine", 37)
        );
    };
    let person = async {
        mesh.agent.until(|state| state.sessions[&session].run).await;
        let mut sent = vec![mesh.agent.state().sessions[&session].log[0].1.clone()];
        let call_id = CallId::new();
        let nasty = "é\u{202e}\u{0}\u{1f}\"\\/\u{2028}\n😀";
        let made: [Data; 3] = [
            MessageDelta { request_id: "r".to_owned(), index: 0, text: nasty.to_owned() }.into(),
            ToolCall {
                call_id,
                tool: "process.exec".to_owned(),
                input: json!({ "b": 1, "a": [nasty, null, -9_007_199_254_740_991_i64] }),
            }
            .into(),
            CallOutput {
                call_id,
                stream: OutputStream::Stdout,
                offset: 0,
                bytes: 3,
                text: "x".repeat(500_000),
            }
            .into(),
        ];
        sent.extend(made.into_iter().map(|data| mesh.agent.push(session, data)));
        let (permission, _) = mesh.agent.ask(session);
        sent.push(mesh.agent.state().sessions[&session].log[4].1.clone());
        for (seq, bytes) in sent.iter().enumerate() {
            let event = within(events.next()).await.expect("an event");
            assert_eq!((event.session_id, event.seq.get()), (session, seq as u64));
            assert_eq!(event.event.get().as_bytes(), bytes, "{seq}");
        }
        let answer = RespondParams {
            session_id: session.into(),
            permission_id: permission.into(),
            decision: acp::Decision::Allow,
            note: None,
            plan_digest: None,
            scope: None,
            approval: None,
        };
        client.call::<Respond>(answer).await.expect("accepted");
        mesh.agent.complete(session, "fine");
    };
    within(async { tokio::join!(run, person) }).await;
    client.close().await;
}

#[tokio::test]
async fn a_client_that_trusts_another_issuer_does_not_send_its_token() {
    let mesh = Mesh::start().await;
    let stranger =
        transport::issue::DevPki::new("other.test".parse().expect("a name")).expect("issuers");
    let mut options = mesh.options("ada");
    options.ca_pem = stranger.services.cert_pem().as_bytes().to_vec();
    let refused = within(acp::client::Client::connect(options)).await.map(|_| ());
    assert!(matches!(refused, Err(acp::client::ConnectError::Secure(_))), "{refused:?}");
}

#[tokio::test]
async fn a_wrong_token_is_told_to_the_client() {
    let mesh = Mesh::start().await;
    let refused = within(acp::client::Client::connect(mesh.options("stranger"))).await.map(|_| ());
    assert!(matches!(refused, Err(acp::client::ConnectError::Unauthenticated)), "{refused:?}");
}
