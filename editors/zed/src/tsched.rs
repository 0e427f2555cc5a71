//! Starts the language server. Zed asks an extension for the command, and takes none from a file.

use zed_extension_api::settings::LspSettings;
use zed_extension_api::{self as zed, LanguageServerId, Result};

/// The name of the server in Zed's settings, and of its program.
const SERVER: &str = "tensorc-dsl";

struct Tsched;

impl zed::Extension for Tsched {
    fn new() -> Self {
        Tsched
    }

    /// The program of the settings, `lsp.tensorc-dsl.binary.path`, else the one on the path of the project's shell.
    fn language_server_command(
        &mut self,
        id: &LanguageServerId,
        worktree: &zed::Worktree,
    ) -> Result<zed::Command> {
        let binary = LspSettings::for_worktree(id.as_ref(), worktree)?.binary;
        let (path, args) = match binary {
            Some(binary) => (binary.path, binary.arguments),
            None => (None, None),
        };
        let command = path.or_else(|| worktree.which(SERVER)).ok_or_else(|| {
            format!("there is no program `{SERVER}` on the path: name it in the settings, `lsp.{SERVER}.binary.path`")
        })?;
        Ok(zed::Command {
            command,
            args: args.unwrap_or_else(|| vec!["lsp".to_string()]),
            env: worktree.shell_env(),
        })
    }
}

zed::register_extension!(Tsched);
