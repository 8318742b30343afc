//! Manifests and scripts of tests, as the text that a person would write. It decides nothing: each test says what it
//! needs.

use serde_json::{Value, json};

/// A manifest with sensible rules; a test changes what it is about.
#[derive(Debug, Clone)]
pub struct Manifest {
    pub id: String,
    pub permissions: Value,
    pub allow_commands: Vec<String>,
    pub allowed_paths: Vec<String>,
    pub interaction: Value,
    pub budget: Value,
    pub limits: Value,
    pub models: Vec<String>,
    /// Another image than the suite's own.
    pub image: Option<String>,
    pub servers: Value,
}

/// Commands and imports are asked for; everything a reader needs is allowed.
pub fn manifest(id: &str) -> Manifest {
    Manifest {
        id: id.to_owned(),
        permissions: json!({
            "fs.list": "allow",
            "fs.read": "allow",
            "fs.write": "allow",
            "process.exec": "ask",
            "patch.import": "ask",
            "network": "deny",
        }),
        allow_commands: vec!["sh".to_owned(), "true".to_owned(), "sleep".to_owned()],
        allowed_paths: vec!["**".to_owned()],
        interaction: json!({"on_disconnect": "hold"}),
        budget: json!({"max_model_tokens": 100_000, "max_tool_calls": 50}),
        limits: json!({}),
        models: vec!["scripted".to_owned()],
        image: None,
        servers: json!({}),
    }
}

impl Manifest {
    #[must_use]
    pub fn rule(mut self, action: &str, effect: Value) -> Self {
        self.permissions[action] = effect;
        self
    }

    #[must_use]
    pub fn interaction(mut self, interaction: Value) -> Self {
        self.interaction = interaction;
        self
    }

    /// JSON is YAML.
    #[must_use]
    pub fn text(&self, image: &str) -> String {
        let Self {
            id,
            permissions,
            allow_commands,
            allowed_paths,
            interaction,
            budget,
            limits,
            models,
            image: other,
            servers,
        } = self;
        let image = other.as_deref().unwrap_or(image);
        let mut execution = json!({
            "backend": "oci", "mode": "snapshot", "image": image, "allow_commands": allow_commands,
        });
        if limits.as_object().is_some_and(|limits| !limits.is_empty()) {
            execution["limits"] = limits.clone();
        }
        if servers.as_object().is_some_and(|servers| !servers.is_empty()) {
            execution["servers"] = servers.clone();
        }
        json!({
            "id": id,
            "title": "A task of the suite",
            "goal": "Show what the suite asks about.",
            "acceptance": ["the suite is satisfied"],
            "allowed_paths": allowed_paths,
            "permissions": permissions,
            "budget": budget,
            "delivery": {"type": "none"},
            "execution": execution,
            "interaction": interaction,
            "models": models,
        })
        .to_string()
    }
}

/// One turn of the scripted model.
#[derive(Debug, Clone)]
pub enum Turn {
    Say(&'static str),
    Call(&'static str, Value),
    /// Several calls in one turn.
    Calls(Vec<(&'static str, Value)>),
}

/// The script as YAML text, ids of calls counted through.
pub fn script(turns: &[Turn]) -> String {
    script_with(turns, &[])
}

/// With the turns of children, each by its task.
pub fn script_with(turns: &[Turn], children: &[(&str, Vec<Turn>)]) -> String {
    let mut id = 0;
    let children: serde_json::Map<String, Value> =
        children.iter().map(|(task, turns)| ((*task).to_owned(), told(turns, &mut id))).collect();
    json!({"script": told(turns, &mut id), "asked": children}).to_string()
}

fn told(turns: &[Turn], id: &mut u32) -> Value {
    let mut call = |name: &str, arguments: &Value| {
        *id += 1;
        json!({"id": format!("call_{id}"), "name": name, "arguments": arguments})
    };
    turns
        .iter()
        .map(|turn| match turn {
            Turn::Say(text) => json!({"content": text}),
            Turn::Call(name, arguments) => json!({"toolCalls": [call(name, arguments)]}),
            Turn::Calls(calls) => {
                json!({"toolCalls": calls.iter().map(|(name, arguments)| call(name, arguments)).collect::<Vec<_>>()})
            }
        })
        .collect()
}
