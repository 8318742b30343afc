//! Which paths need an ask of their own whatever the rules allow, and which are never written. The list is
//! the built-in one or an administrator's; a manifest has no say.

mod builtin;

use crate::ceiling::Ceiling;
use crate::glob::Glob;
use crate::names::{fold, is_git};
use crate::overlap::may_intersect;
use crate::path::WorkPath;

/// The protected paths in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protected {
    builtin: bool,
    patterns: Vec<Glob>,
}

impl Default for Protected {
    fn default() -> Self {
        Self { builtin: true, patterns: Vec::new() }
    }
}

impl Protected {
    /// The outermost list that is given replaces the built-in one; a tenant's adds to its organisation's.
    pub(crate) fn under(organisation: Option<&Ceiling>, tenant: Option<&Ceiling>) -> Self {
        let listed = |ceiling: Option<&Ceiling>| ceiling?.protected_paths.clone();
        let lists: Vec<_> = [listed(organisation), listed(tenant)].into_iter().flatten().collect();
        let globs = |text: &String| {
            let text = fold(text);
            // `dir/` is whatever is below it, as in allowed_paths.
            let below = text.ends_with('/').then(|| Glob::new(&format!("{text}**")));
            [Some(Glob::new(&text)), below].into_iter().flatten()
        };
        Self {
            builtin: lists.is_empty(),
            patterns: lists.iter().flatten().flat_map(globs).collect(),
        }
    }

    /// A path for every entry of the built-in list, in force or not.
    pub(crate) fn builtin_examples() -> impl Iterator<Item = String> {
        builtin::examples()
    }

    pub fn covers(&self, path: &WorkPath) -> bool {
        if self.builtin && builtin::covers(path.segments()) {
            return true;
        }
        if self.patterns.is_empty() {
            return false;
        }
        let folded = fold(path.as_str());
        self.patterns
            .iter()
            .any(|pattern| pattern.matches(&folded) || pattern.matches(&format!("{folded}/")))
    }
}

impl Protected {
    /// Whether something that is or could be in the directory is covered. The built-in list has names that are
    /// covered anywhere.
    pub(crate) fn may_cover_below(&self, directory: &WorkPath) -> bool {
        let below = Glob::new(&format!("{}/**", fold(directory.as_str())));
        self.builtin || self.patterns.iter().any(|pattern| may_intersect(pattern, &below))
    }
}

/// Whether the built-in list covers it.
pub fn is_protected(path: &WorkPath) -> bool {
    builtin::covers(path.segments())
}

/// Whether some segment of it is `.git`, in any spelling.
pub fn is_git_directory(path: &WorkPath) -> bool {
    path.segments().any(is_git)
}

#[cfg(test)]
mod tests {
    use super::{is_git_directory, is_protected};
    use crate::path::WorkPath;

    fn path(text: &str) -> WorkPath {
        WorkPath::parse(text).unwrap()
    }

    #[test]
    fn what_runs_or_is_obeyed_on_its_own_is_protected() {
        for text in [
            ".github/workflows/x.yml",
            ".GitHub/workflows/x.yml",
            "sub/.vscode/tasks.json",
            ".envrc",
            "AGENTS.md",
            "docs/agents.md",
            "CLAUDE.md",
            ".gitattributes",
            ".gitattributes.",
            ".g\u{200c}itattributes",
            "Make\u{fb01}le",
            "ma\u{212a}efile",
            "\u{ff2d}akefile",
            "build.rs",
            "Cargo.toml",
            "package.json",
            "vite.config.ts",
            "conftest.py",
            "Dockerfile.dev",
            "app/app.csproj",
            "tasks/fix.yaml",
            ".harness/policy.toml",
            "x/HEAD",
            "x/packed-refs",
            "x/info/attributes",
            "x/hooks/post-checkout",
            "x.git/config",
            ".hg/hgrc",
            ".gitpod.yml",
            ".build.yml",
            ".builds/x.yml",
            "netlify.toml",
            ".bash_aliases",
            ".curlrc",
            ".wgetrc",
            "ansible.cfg",
            "app.dockerfile",
            "Earthfile",
            "Snakefile",
            "xmake.lua",
            "conanfile.py",
            "fastlane/Fastfile",
            "x.tf",
            "x.tf.json",
            "cdk.json",
            "package.yaml",
            "karma.conf.js",
            "webpack.config.babel.js",
            "vitest.workspace.ts",
            ".storybook/main.ts",
            "angular.json",
            "dev-requirements-3.txt",
            ".project",
            ".rules",
            ".trae/rules/x.md",
            "QWEN.md",
            "opencode.json",
            ".opencode/x",
            ".opencode.json",
        ] {
            assert!(is_protected(&path(text)), "{text}");
        }
        for text in [
            "app.txt",
            "src/main.rs",
            "README.md",
            "docs/guide.md",
            "data/tasks.csv",
            "a.js",
            ".",
            "src/hooks/useState.ts",
            "config",
            "src/header",
            "requirements.md",
        ] {
            assert!(!is_protected(&path(text)), "{text}");
        }
    }

    #[test]
    fn an_administrators_list_is_held_against_every_spelling() {
        let text = "kind: ceiling\nid: top\nprotected_paths: ['r\u{e9}gles/', Deploy.sh]\n";
        let ceiling = crate::Ceiling::parse(text.as_bytes(), "ceiling.yaml").unwrap();
        let protected = super::Protected::under(Some(&ceiling), None);
        for text in ["re\u{301}gles/x", "R\u{c9}GLES/x/y", "deploy.SH", "deplo\u{200b}y.sh"] {
            assert!(protected.covers(&path(text)), "{text}");
        }
        for text in ["regles/x", "deploy", "Makefile"] {
            assert!(!protected.covers(&path(text)), "{text}");
        }
    }

    #[test]
    fn a_git_directory_is_found_at_any_depth() {
        for text in [".git", ".git/config", "sub/.GIT/hooks/x", "a/git~1/b", "a/.git./b"] {
            assert!(is_git_directory(&path(text)), "{text}");
        }
        for text in ["git", ".gitignore", "a/.github/b", "src/git.rs"] {
            assert!(!is_git_directory(&path(text)), "{text}");
        }
    }
}
