//! What a name means to tools that fold names: `.git` in every spelling, and files that hold credentials.
//! Names decide here, never contents.

/// As every name is folded that rules are about; bytes that are not UTF-8 become U+FFFD.
pub(crate) fn fold(name: &[u8]) -> String {
    manifest::fold(&String::from_utf8_lossy(name))
}

/// `.git` in every spelling.
pub(crate) fn is_git(name: &[u8]) -> bool {
    manifest::is_git(&String::from_utf8_lossy(name))
}

/// Whole directories of credentials.
const SECRET_DIRECTORIES: &str =
    ".ssh .aws .azure .gnupg .kube .oci .gcloud .password-store .vault";
const SECRET_FILES: &str = ".envrc .netrc _netrc .npmrc .yarnrc.yml .pypirc nuget.config \
    .git-credentials .htpasswd .pgpass pgpass.conf .my.cnf .mylogin.cnf .s3cfg .boto .dockercfg \
    .dockerconfigjson .vault-token .terraformrc terraform.rc .rclone.conf rclone.conf kubeconfig \
    .vault_pass .vault_password auth.json .authinfo .authinfo.gpg .fetchmailrc .smbcredentials wallet.dat \
    credentials credentials.json credentials.toml credentials.yml credentials.yaml credentials.xml \
    credentials.ini credentials.csv credentials.db application_default_credentials.json \
    secrets.json secrets.toml secrets.yml secrets.yaml secrets.ini secrets.properties";
const SECRET_SUFFIXES: &str = ".pem .key .p12 .pfx .pkcs12 .p8 .jks .keystore .bcfks .kdbx .kdb .ppk \
    .ovpn .tfstate .tfstate.backup .tfvars .agekey .mobileprovision .keychain .keychain-db .psafe3 .env";
/// Harmless elsewhere: directory and name.
const SECRET_IN_DIRECTORY: &str = ".docker/config .docker/config.json .m2/settings.xml .m2/settings-security.xml \
    .gem/credentials .gradle/gradle.properties .composer/auth.json .fly/config.yml .circleci/cli.yml \
    .config/gcloud .config/gh .config/hub .config/op .config/rclone .config/doctl .config/heroku";
/// Dotenv files that are written to be shared.
const SHARED_ENV: &str = "example sample template dist defaults";

/// Whether `name` in the directory called `parent` is named like something that holds credentials.
pub(crate) fn is_secret(parent: Option<&[u8]>, name: &[u8], is_directory: bool) -> bool {
    let name = fold(name);
    let name = bare(&name);
    let within = parent.map(|parent| format!("{}/{name}", fold(parent)));
    lists(SECRET_DIRECTORIES, name)
        || within.is_some_and(|within| lists(SECRET_IN_DIRECTORY, &within))
        || !is_directory && is_secret_file(name)
}

/// The name without what editors, backups and careless shells put around it.
fn bare(name: &str) -> &str {
    let mut bare = name;
    loop {
        let mut rest = bare.trim();
        rest = rest.strip_prefix('#').and_then(|rest| rest.strip_suffix('#')).unwrap_or(rest);
        rest = rest.trim_end_matches('~');
        if let Some(swapped) = [".swp", ".swo"].iter().find_map(|end| rest.strip_suffix(end)) {
            rest =
                swapped.strip_prefix('.').filter(|name| name.starts_with('.')).unwrap_or(swapped);
        }
        rest = [".bak", ".old", ".orig", ".save", ".tmp", ".copy"]
            .iter()
            .find_map(|end| rest.strip_suffix(end))
            .unwrap_or(rest);
        if rest == bare || rest.is_empty() {
            return bare;
        }
        bare = rest;
    }
}

fn is_secret_file(name: &str) -> bool {
    lists(SECRET_FILES, name)
        || is_env(name)
        || is_ssh_key(name)
        || is_service_account(name)
        || SECRET_SUFFIXES
            .split_ascii_whitespace()
            .any(|suffix| name.len() > suffix.len() && name.ends_with(suffix))
}

fn lists(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|item| item == name)
}

fn is_env(name: &str) -> bool {
    match name.strip_prefix(".env") {
        Some("") => true,
        Some(rest) => {
            rest.strip_prefix(['.', '-', '_'])
                .is_some_and(|kind| !lists(SHARED_ENV, kind.rsplit('.').next().unwrap_or(kind)))
                || rest.bytes().all(|byte| byte.is_ascii_digit())
        }
        None => false,
    }
}

fn is_ssh_key(name: &str) -> bool {
    ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_xmss", "ssh_host_"]
        .iter()
        .any(|kind| name.starts_with(kind))
        && !name.ends_with(".pub")
}

fn is_service_account(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".json") else { return false };
    let stem = stem.replace(['_', '.'], "-");
    ["service-account", "serviceaccount", "client-secret", "gcp-key", "firebase-adminsdk"]
        .iter()
        .any(|kind| stem.contains(kind))
}

/// What a private key begins with, whatever its name.
pub(crate) fn begins_like_a_private_key(head: &[u8]) -> bool {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    // Exports from a PKCS #12 file say what the key is for before it begins.
    if text.starts_with(b"Bag Attributes") || text.starts_with(b"Key Attributes") {
        return lines.any(is_key_line);
    }
    lines.next().is_some_and(is_key_line)
}

fn is_key_line(line: &[u8]) -> bool {
    line.starts_with(b"-----BEGIN ") && line.ends_with(b"PRIVATE KEY-----")
        || line.starts_with(b"PuTTY-User-Key-File-")
        || line.starts_with(b"-----BEGIN PGP PRIVATE KEY BLOCK")
}

#[cfg(test)]
mod tests {
    use super::{begins_like_a_private_key, is_git, is_secret};

    #[test]
    fn a_copy_of_a_secret_is_a_secret() {
        for name in [
            ".env~",
            ".env ",
            ".env1",
            "#.env#",
            "..env.swp",
            "server.pem.bak",
            "server.pem~",
            "key.pem.old",
            "credentials.bak",
            "secrets.yaml.bak",
            ".vault_pass",
            "terraform.tfvars",
            "auth.json",
        ] {
            assert!(is_secret(None, name.as_bytes(), false), "{name:?}");
        }
        assert!(is_secret(None, b".ssh.bak", true));
        assert!(is_secret(Some(b".docker"), b"config", false));
        for name in
            ["app.txt~", "notes.bak", "#draft#", ".main.rs.swp", "environment.rs", "authors.json"]
        {
            assert!(!is_secret(None, name.as_bytes(), false), "{name:?}");
        }
    }

    #[test]
    fn a_key_behind_its_attributes_is_a_key() {
        let exported = b"Bag Attributes\n    friendlyName: x\nKey Attributes: <No Attributes>\n-----BEGIN PRIVATE KEY-----\n";
        assert!(begins_like_a_private_key(exported));
        assert!(!begins_like_a_private_key(b"How to write one:\n-----BEGIN PRIVATE KEY-----\n"));
    }

    #[test]
    fn git_is_git_in_every_spelling() {
        for name in [
            ".git",
            ".GIT",
            ".Git",
            ".git.",
            ".git ",
            ".git . .",
            "git~1",
            "GIT~2",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".git::$INDEX_ALLOCATION",
            ".git\\hooks",
            "x\\.git",
            ".g\u{206f}it",
        ] {
            assert!(is_git(name.as_bytes()), "{name:?}");
        }
        for name in [".gitignore", ".github", "git", "git~", "git~x", ".gitattributes", "a.git"] {
            assert!(!is_git(name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn files_named_like_credentials_are_secret() {
        for name in [
            ".env",
            ".ENV",
            ".env.local",
            ".env.production",
            ".env-prod",
            ".envrc",
            "prod.env",
            ".npmrc",
            ".netrc",
            ".pypirc",
            "credentials.json",
            "id_rsa",
            "id_ed25519",
            "id_ecdsa_sk",
            "server.pem",
            "tls.key",
            "store.p12",
            "a.pfx",
            "x.jks",
            "my-service-account.json",
            "client_secret_1.json",
            "terraform.tfstate",
            ".git-credentials",
            ".ssh",
            ".aws",
            ".gnupg",
            ".\u{200b}env",
        ] {
            assert!(is_secret(None, name.as_bytes(), false), "{name}");
        }
        assert!(is_secret(Some(b".docker"), b"config.json", false));
        assert!(is_secret(Some(b".config"), b"gcloud", true));
        assert!(is_secret(None, b".ssh", true));
        assert!(!is_secret(None, b"credentials", true));
        assert!(!is_secret(None, b".env", true));
        for name in [
            ".env.example",
            ".env.sample",
            ".env.local.example",
            "environment.rs",
            "id_rsa.pub",
            "key.rs",
            "keys",
            "config.json",
            "pem",
            "README.md",
            "app.txt",
            ".gitignore",
            "hosts.yml",
            "env",
        ] {
            assert!(!is_secret(None, name.as_bytes(), false), "{name}");
        }
    }

    #[test]
    fn a_private_key_betrays_itself() {
        for head in [
            "-----BEGIN PRIVATE KEY-----\nMII",
            "\n-----BEGIN OPENSSH PRIVATE KEY-----\r\nx",
            "-----BEGIN EC PRIVATE KEY-----",
            "\u{feff}-----BEGIN RSA PRIVATE KEY-----\n",
            "PuTTY-User-Key-File-3: x",
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
        ] {
            assert!(begins_like_a_private_key(head.as_bytes()), "{head}");
        }
        for head in ["-----BEGIN CERTIFICATE-----\n", "see -----BEGIN PRIVATE KEY-----\n", ""] {
            assert!(!begins_like_a_private_key(head.as_bytes()), "{head}");
        }
    }
}
