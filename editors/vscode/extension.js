// Starts the language server for `.tsched` files, and again when its command changes or a person asks for it.
"use strict";

const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");
const { Panel } = require("./panel");

/** @type {LanguageClient | undefined} */
let client;
/** What is done after all that was asked for before, so that two servers never run at once. */
let last = Promise.resolve();

/** Has the server run a command; null if there is none, or if it cannot. */
const panel = new Panel(async (command, given) => {
  return client?.sendRequest("workspace/executeCommand", { command, arguments: given }).catch(() => null) ?? null;
});

function inTurn(step) {
  last = last.then(step, step);
  return last;
}

// Not waited for: a person may leave the message where it is, and restart the server meanwhile.
async function tell(command, error) {
  const choice = await vscode.window.showWarningMessage(
    `The language server \`${command} lsp\` did not start: ${error.message ?? error}. Colours and snippets work without it.`,
    "Set the command",
  );
  if (choice) await vscode.commands.executeCommand("workbench.action.openSettings", "tensorc-dsl.command");
}

async function stop() {
  const old = client;
  client = undefined;
  if (old) await old.stop().catch(() => {}); // it may have ended by itself
}

async function start() {
  await stop();
  const command = vscode.workspace.getConfiguration("tensorc-dsl").get("command", "tensorc-dsl");
  const started = new LanguageClient(
    "tensorc-dsl",
    "tensorc-dsl",
    { command, args: ["lsp"] },
    {
      // Not the panel's own document.
      documentSelector: ["file", "untitled"].map((scheme) => ({ scheme, language: "tsched" })),
      middleware: { executeCommand: (...given) => panel.run(...given) },
    },
  );
  client = started;
  try {
    await started.start();
  } catch (error) {
    client = undefined;
    tell(command, error);
  }
}

exports.activate = (context) => {
  context.subscriptions.push(
    ...panel.register(),
    vscode.commands.registerCommand("tensorc-dsl.restart", () => inTurn(start)),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("tensorc-dsl.command")) return inTurn(start);
    }),
  );
  inTurn(start);
};

exports.deactivate = () => inTurn(stop);
