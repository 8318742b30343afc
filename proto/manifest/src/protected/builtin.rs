//! Files that a shell, editor, pipeline, build tool, package manager, git or agent runs or obeys on its own, by
//! name. Compared as a host that folds names would; contents never decide.

use crate::names::fold_segment;

/// Everything in such a directory, at any depth.
const DIRECTORIES: &str = ".github .gitlab .gitea .forgejo .circleci .buildkite .tekton .teamcity \
    .semaphore .woodpecker .azure-pipelines .ci .githooks .husky .lefthook .vscode .vscode-server .idea .zed \
    .fleet .devcontainer .vim .nvim .cursor .claude .codex .agents .gemini .windsurf .roo .continue .kiro \
    .junie .aider .cline .copilot .harness .zhivex .cargo .mvn .yarn .direnv .bundle .config .nix .bazelci \
    .moon .mise .rustup .local .hg .builds .storybook .trae .opencode";
/// A file of that name, anywhere.
const FILES: &str = ".gitattributes .gitmodules .gitconfig .gitlab-ci.yml .travis.yml .drone.yml \
    .cirrus.yml .appveyor.yml appveyor.yml .woodpecker.yml .woodpecker.yaml azure-pipelines.yml \
    azure-pipelines.yaml bitbucket-pipelines.yml buildspec.yml buildspec.yaml cloudbuild.yaml \
    cloudbuild.yml jenkinsfile .pre-commit-config.yaml .pre-commit-hooks.yaml lefthook.yml \
    lefthook.yaml .lintstagedrc renovate.json .renovaterc .goreleaser.yml .goreleaser.yaml \
    .exrc .vimrc .nvimrc .nvim.lua .lvimrc .dir-locals.el .emacs .editorconfig .projectile \
    .bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin .kshrc \
    .cshrc .tcshrc .inputrc .envrc .tool-versions .mise.toml mise.toml .autoenv .autoenv.zsh .env \
    .gdbinit .lldbinit .pythonrc .irbrc .pryrc .rspec .perlcriticrc .screenrc .tmux.conf \
    agents.md agents.override.md agent.md claude.md claude.local.md gemini.md copilot-instructions.md \
    .cursorrules .windsurfrules .clinerules .roorules .goosehints .aider.conf.yml .mcp.json mcp.json \
    skill.md conventions.md warp.md \
    makefile gnumakefile bsdmakefile build.rs cargo.toml cargo.lock rust-toolchain rust-toolchain.toml \
    rustfmt.toml clippy.toml .clippy.toml package.json package-lock.json npm-shrinkwrap.json yarn.lock \
    pnpm-lock.yaml pnpm-workspace.yaml .pnpmfile.cjs bun.lock bun.lockb bunfig.toml deno.json \
    deno.jsonc deno.lock lerna.json nx.json turbo.json .npmrc .yarnrc .yarnrc.yml .babelrc .swcrc \
    tsconfig.json gulpfile.js gruntfile.js setup.py setup.cfg pyproject.toml poetry.lock pdm.lock uv.lock \
    pipfile pipfile.lock requirements.txt constraints.txt conftest.py pytest.ini tox.ini noxfile.py \
    tasks.py fabfile.py dodo.py sitecustomize.py usercustomize.py manage.py .pylintrc mypy.ini .flake8 \
    cmakelists.txt cmakepresets.json cmakeuserpresets.json meson.build meson_options.txt build.ninja \
    build build.bazel workspace workspace.bazel module.bazel .bazelrc .bazelversion buck tup.config \
    sconstruct sconscript wscript configure configure.ac configure.in autogen.sh bootstrap.sh bootstrap \
    build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradle.properties gradlew \
    gradlew.bat gradle-wrapper.properties gradle-wrapper.jar pom.xml mvnw mvnw.cmd build.xml ivy.xml \
    build.sbt build.sc rakefile gemfile gemfile.lock .rubocop.yml composer.json composer.lock mix.exs \
    mix.lock rebar.config stack.yaml cabal.project setup.hs dune dune-project go.mod go.sum go.work \
    magefile.go package.swift package.resolved podfile podfile.lock cartfile justfile .justfile \
    taskfile.yml taskfile.yaml dockerfile containerfile .dockerignore docker-compose.yml \
    docker-compose.yaml compose.yml compose.yaml docker-bake.hcl skaffold.yaml tiltfile vagrantfile \
    procfile flake.nix flake.lock default.nix shell.nix terragrunt.hcl .terraform.lock.hcl \
    global.json directory.build.props directory.build.targets nuget.config build.zig build.zig.zon \
    project.clj deps.edn shadow-cljs.edn cpanfile makefile.pl build.pl dangerfile brewfile \
    head packed-refs commondir gitdir .gitpod.yml .build.yml netlify.toml .bash_aliases .curlrc .wgetrc \
    ansible.cfg earthfile snakefile xmake.lua conanfile.py fastfile cdk.json package.yaml angular.json \
    .project .rules qwen.md opencode.json";
const SUFFIXES: &str = ".mk .cmake .sln .csproj .fsproj .vbproj .props .targets .vcxproj .gemspec \
    .podspec .cabal .sbt .bzl .nimble .rockspec .opam .code-workspace .sublime-project .pth .tf \
    .gyp .gypi .pbxproj .xcscheme .kak .rake .hcl .nix .gradle .gradle.kts .am .m4 .workflow \
    .dockerfile .tf.json";
const PREFIXES: &str = "dockerfile. containerfile. makefile. docker-compose. compose. requirements- \
    requirements_ .eslintrc .prettierrc .stylelintrc .lintstagedrc .mocharc .nycrc .commitlintrc \
    .releaserc .renovaterc jenkinsfile. karma.conf. webpack.config. vitest. .opencode";
/// What git runs from a directory `hooks`. Another file in one is not run, and the name is common.
const GIT_HOOKS: &str = "applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit \
    prepare-commit-msg commit-msg post-commit pre-rebase post-checkout post-merge pre-push pre-receive update \
    proc-receive post-receive post-update reference-transaction push-to-checkout pre-auto-gc post-rewrite \
    sendemail-validate fsmonitor-watchman p4-changelist p4-prepare-changelist p4-post-changelist \
    p4-pre-submit post-index-change";
/// Tools read `NAME.config.js` and its kin as programs.
const PROGRAM_CONFIGS: &str = ".js .cjs .mjs .ts .cts .mts .json";

/// Whether the built-in list covers a path, given by its segments.
pub(crate) fn covers<'s>(segments: impl Iterator<Item = &'s str>) -> bool {
    let folded: Vec<String> = segments.map(fold_segment).collect();
    let Some((file, directories)) = folded.split_last() else { return false };
    directories.iter().any(|directory| lists(DIRECTORIES, directory))
        || lists(DIRECTORIES, file)
        || lists(FILES, file)
        || SUFFIXES.split_ascii_whitespace().any(|suffix| file.ends_with(suffix))
        || PREFIXES.split_ascii_whitespace().any(|prefix| file.starts_with(prefix))
        || is_program_config(file)
        || file.contains("requirements") && file.ends_with(".txt")
        || is_of_a_repository(directories, file)
        || is_task_manifest(directories, file)
}

/// Parts of a repository without a work tree, which git finds in any directory that has `HEAD`, `objects` and
/// `refs`. Without a `HEAD`, which is a name of its own in the list, there is none; where one is already, its
/// `config` is told from others only by a directory that is named `x.git`.
fn is_of_a_repository(directories: &[String], file: &str) -> bool {
    let within = directories.last().map(String::as_str);
    directories.iter().any(|directory| directory.ends_with(".git"))
        || within == Some("info") && file == "attributes"
        || within == Some("hooks") && lists(GIT_HOOKS, file)
}

/// A path for every entry of the built-in list.
pub(crate) fn examples() -> impl Iterator<Item = String> {
    let words = |list: &'static str| list.split_ascii_whitespace();
    words(DIRECTORIES)
        .map(|name| format!("{name}/x"))
        .chain(words(FILES).map(str::to_owned))
        .chain(words(SUFFIXES).map(|suffix| format!("x{suffix}")))
        .chain(words(PREFIXES).map(|prefix| format!("{prefix}x")))
        .chain(words(PROGRAM_CONFIGS).map(|suffix| format!("x.config{suffix}")))
        .chain(words(GIT_HOOKS).map(|name| format!("hooks/{name}")))
        .chain(
            ["tasks/x.yaml", "x.git/x", "info/attributes", "x-requirements.txt"].map(str::to_owned),
        )
}

fn is_program_config(file: &str) -> bool {
    PROGRAM_CONFIGS
        .split_ascii_whitespace()
        .filter_map(|suffix| file.strip_suffix(suffix))
        .any(|stem| stem.ends_with(".config") || stem == "gulpfile" || stem == "gruntfile")
}

/// The reviewed task files themselves.
fn is_task_manifest(directories: &[String], file: &str) -> bool {
    directories.last().is_some_and(|directory| directory == "tasks")
        && (file.ends_with(".yaml") || file.ends_with(".yml"))
}

fn lists(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|item| item == name)
}
