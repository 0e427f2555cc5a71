// Writes CodeMirror as one file, with the licences of what is in it. `make codemirror` runs it.
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "../../tensorc_dsl/faces/playground/page");

const made = await build({
  absWorkingDir: here,
  entryPoints: ["codemirror.js"],
  bundle: true,
  charset: "ascii",
  format: "esm",
  legalComments: "none",
  metafile: true,
  minify: true,
  target: "es2022",
  write: false,
});

const packages = new Set();
for (const path of Object.keys(made.metafile.inputs)) {
  const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
  if (found) packages.add(found[1]);
}
const licences = [...packages].sort().map((name) => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  return { name, version, license, text: readFileSync(join(folder, "LICENSE"), "utf8").trim() };
});
const names = licences.map((l) => `${l.name} ${l.version}`).join(", ");
const head = `// ${names}: see codemirror.LICENSES.txt. \`make codemirror\` builds this file.\n`;
writeFileSync(join(out, "codemirror.js"), head + made.outputFiles[0].text);
const rule = `\n\n${"-".repeat(80)}\n\n`;
writeFileSync(
  join(out, "codemirror.LICENSES.txt"),
  "The licences of what is built into codemirror.js.\n\n" +
    licences.map((l) => `${l.name} ${l.version} (${l.license})\n\n${l.text}`).join(rule) + "\n",
);
