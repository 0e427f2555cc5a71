// Prints the grammar that a `grammar.js` makes, as the generator of tree-sitter does: its rules, extras, externals and conflicts.
const text = (value) => ({ type: "STRING", value });
const rule = (r) =>
  typeof r === "string" ? text(r) : r instanceof RegExp ? { type: "PATTERN", value: r.source } : r;
const many = (type, rules) => ({ type, members: rules.map(rule) });
const one = (type, r, more = {}) => ({ type, ...more, content: rule(r) });
const prec = (type) => (value, r) => one(type, r, { value });

global.blank = () => ({ type: "BLANK" });
global.seq = (...rules) => many("SEQ", rules);
global.choice = (...rules) => many("CHOICE", rules);
global.optional = (r) => choice(r, blank());
global.repeat = (r) => one("REPEAT", r);
global.repeat1 = (r) => one("REPEAT1", r);
global.field = (name, r) => one("FIELD", r, { name });
global.token = (r) => one("TOKEN", r);
token.immediate = (r) => one("IMMEDIATE_TOKEN", r);
global.prec = prec("PREC");
global.prec.right = prec("PREC_RIGHT");
global.alias = (r, as) =>
  typeof as === "string" ? one("ALIAS", r, { named: false, value: as }) : one("ALIAS", r, { named: true, value: as.name });

const symbols = new Proxy({}, { get: (_, name) => ({ type: "SYMBOL", name }) });
global.grammar = (options) => options;
const { name, word, rules, extras, conflicts, externals } = require(require("path").resolve(process.argv[2]));
const said = {
  name,
  word: word(symbols).name,
  rules: Object.fromEntries(Object.entries(rules).map(([key, made]) => [key, rule(made(symbols))])),
  extras: extras(symbols).map(rule),
  conflicts: conflicts(symbols).map((names) => names.map((s) => s.name)),
  externals: externals(symbols).map(rule),
};
console.log(JSON.stringify(said));
