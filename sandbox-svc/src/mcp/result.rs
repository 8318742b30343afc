//! What a model is told of a tool's answer: text within bounds, everything else by kind and size, and always that
//! nobody vouches for it.

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

/// Of all texts together, half from the beginning and half from the end of each.
const TEXT: usize = 64 * 1024;
const BLOCKS: usize = 100;
const STRUCTURED: usize = 64 * 1024;

pub(crate) fn told(server: &str, tool: &str, result: &CallToolResult) -> Value {
    let mut room = TEXT;
    let blocks = result.content.iter().take(BLOCKS);
    let content: Vec<Value> = blocks.map(|block| block_of(block, &mut room)).collect();
    let mut told = json!({
        "server": server,
        "tool": tool,
        "untrusted": true,
        "isError": result.is_error.unwrap_or(false),
        "content": content,
    });
    let left_out = result.content.len().saturating_sub(BLOCKS);
    if left_out > 0 {
        told["contentLeftOut"] = left_out.into();
    }
    if let Some(structured) = &result.structured_content {
        match event::canon::to_bytes(structured) {
            Ok(bytes) if bytes.len() <= STRUCTURED => told["structured"] = structured.clone(),
            Ok(bytes) => told["structuredBytes"] = bytes.len().into(),
            Err(_) => told["structuredBytes"] = Value::Null,
        }
    }
    told
}

fn block_of(block: &ContentBlock, room: &mut usize) -> Value {
    let value = serde_json::to_value(block).unwrap_or(Value::Null);
    let kind = value["type"].as_str().unwrap_or("unknown").to_owned();
    if let ContentBlock::Text(text) = block {
        let (shown, bytes) = (clipped(&text.text, *room), text.text.len());
        *room = room.saturating_sub(bytes);
        return match shown {
            Some(shown) => json!({ "type": "text", "text": shown, "bytes": bytes }),
            None => json!({ "type": "text", "bytes": bytes }),
        };
    }
    // Its JSON: close enough to say how much there was.
    json!({ "type": kind, "bytes": value.to_string().len() })
}

/// Beginning and end; nothing where there is no room for either.
fn clipped(text: &str, room: usize) -> Option<String> {
    if text.len() <= room {
        return Some(text.to_owned());
    }
    if room == 0 {
        return None;
    }
    let (mut head, mut tail) = (room / 2, text.len() - room / 2);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    let left_out = tail - head;
    Some(format!("{}\n[{left_out} bytes left out]\n{}", &text[..head], &text[tail..]))
}
