// The syntax of `.tsched` for tree-sitter: the rules of grammar/tsched.lark, in their order and by their names.
//
// `make treesitter TSGEN=…` makes src/parser.c of it. The parser accepts what the language's own does: tests/editors compares them.
//
// What differs from the LALR grammar:
//   * Newlines that count, and the words that begin a reduction, come from src/scanner.c, as they come from a pass of their own
//     there (tensorc_dsl/syntax/layout.py).
//   * The generator takes a reserved word for a name wherever no rule can begin with the word. So each reserved word may begin
//     a `_name`, and then comes `_never`, a word that no text has.
//   * A type with the name of a reduction, `A: sum[M]`, is taken for a name. The language refuses it.
//   * In programs, `sum`, `reduce` and `scan` begin nothing, so expressions have their rules twice: `_p_…` are those of programs.

const RESERVED = ["and", "either", "else", "for", "if", "in", "let", "maybe", "not", "or", "where", "yield"];
const VALUES = ["_", "false", "inf", "nan", "true"];
const SOFT = [
  "compute", "reducer", "intrinsic", "target", "module", "space", "schedule", "task", "use", "program", "prior",
  "identity", "assume", "desc", "layout", "lower", "requires", "asm", "call", "when", "with",
  "init", "step", "scan", "spatial", "reduce", "block", "buffer", "parallel", "vectorized", "unrolled",
  "pipelined", "tensorized", "bound", "const", "at", "strides", "updates", "try", "otherwise", "model", "weights", "sha256",
  "select", "like",
];

const list = (rule) => seq(rule, repeat(seq(",", rule)));
const listed = (rule) => seq(list(rule), optional(","));

// Statements in braces, one in a line.
const lines = ($, rule) =>
  seq("{", optional($._lines), optional(seq(rule, repeat(seq($._lines, rule)), optional($._lines))), "}");
const lines1 = ($, rule) =>
  seq("{", optional($._lines), rule, repeat(seq($._lines, rule)), optional($._lines), "}");

// Things in parentheses, and between them, once, those that have no names.
const with_rest = ($, several) =>
  seq("(", optional(seq(several, ",")), $.rest, optional(seq(",", several)), optional(","), ")");

// The rules of expressions, loosest binding first; `p` is the prefix of their names.
function expressions(p, reductions) {
  const ref = ($, name) => $[`_${p}${name}`];
  // The node of a rule of programs has the name of the other one.
  const node = ($, name) => (p ? alias($[`_${p}${name}`], $[name]) : $[name]);
  const rules = {
    expr: ($) => choice(ref($, "choice"), node($, "range"), node($, "for_list"), node($, "lambda")),
    choice: ($) => choice(ref($, "disjunction"), node($, "conditional")),
    disjunction: ($) => choice(ref($, "conjunction"), alias(ref($, "or"), $.logic)),
    or: ($) => prec.right(1, seq(ref($, "disjunction"), "or", ref($, "conjunction"))),
    conjunction: ($) => choice(ref($, "negation"), alias(ref($, "and"), $.logic)),
    and: ($) => prec.right(1, seq(ref($, "conjunction"), "and", ref($, "negation"))),
    negation: ($) => choice(ref($, "comparison"), node($, "not")),
    comparison: ($) => choice(ref($, "sum"), node($, "compare")),
    sum: ($) => choice(ref($, "product"), alias(ref($, "add"), $.binary)),
    add: ($) => prec.right(1, seq(ref($, "sum"), choice("+", "-"), ref($, "product"))),
    product: ($) => choice(ref($, "unary"), alias(ref($, "multiply"), $.binary)),
    multiply: ($) => prec.right(1, seq(ref($, "product"), choice("*", "/", "%"), ref($, "unary"))),
    unary: ($) => choice(ref($, "postfix"), node($, "negate"), ...reductions.map((name) => $[name])),
    postfix: ($) =>
      choice(ref($, "atom"), node($, "call"), node($, "index"), node($, "slice"), node($, "attribute")),
    atom: ($) =>
      choice(
        $._name, $.integer, $.float, alias(choice("inf", "nan"), $.float_constant), $.string,
        alias(choice("true", "false"), $.boolean), $.wildcard, node($, "list"), node($, "map"), node($, "paren"),
      ),
    several: ($) => choice(ref($, "expr"), seq(ref($, "several"), ",", ref($, "expr"))),
    exprs: ($) => seq(ref($, "several"), optional(",")),
  };
  const nodes = {
    range: ($) => prec.right(1, seq(ref($, "sum"), "..", ref($, "sum"))),
    for_list: ($) =>
      seq(
        "for", $._pattern, "in",
        choice(seq(ref($, "expr"), $.body), seq(ref($, "disjunction"), alias(ref($, "filter"), $.filter), $.body)),
      ),
    lambda: ($) =>
      choice(
        seq(alias($._params_of_map, $.parens), "->", node($, "parens")),
        seq(alias($._params_with_rest, $.parens), "->", alias(ref($, "parens_with_rest"), $.parens)),
      ),
    conditional: ($) => prec.right(1, seq(ref($, "disjunction"), "if", ref($, "disjunction"), "else", ref($, "expr"))),
    not: ($) => seq("not", ref($, "negation")),
    compare: ($) => prec.right(1, seq(ref($, "sum"), repeat1(prec.right(1, seq($.comparator, ref($, "sum")))))),
    negate: ($) => seq("-", ref($, "unary")),
    call: ($) => seq(field("function", ref($, "postfix")), "(", optional(node($, "arguments")), ")"),
    arguments: ($) =>
      choice(
        seq(ref($, "several"), repeat(seq(",", node($, "keyword"))), optional(",")),
        listed(node($, "keyword")),
      ),
    keyword: ($) => seq(field("name", $._name), "=", ref($, "expr")),
    index: ($) => seq(ref($, "postfix"), "[", ref($, "exprs"), "]"),
    slice: ($) => seq(ref($, "postfix"), "[", optional(ref($, "expr")), ":", optional(ref($, "expr")), "]"),
    attribute: ($) => seq(ref($, "postfix"), ".", field("attribute", $._name)),
    list: ($) => seq("[", optional(ref($, "exprs")), "]"),
    map: ($) => seq("{", listed(node($, "entry")), "}"),
    entry: ($) => seq(ref($, "expr"), ":", ref($, "expr")),
    paren: ($) => seq("(", ref($, "expr"), optional(","), ")"),
    parens: ($) => seq("(", optional(ref($, "exprs")), ")"),
  };
  const out = {};
  for (const [name, rule] of Object.entries(rules)) out[`_${p}${name}`] = rule;
  for (const [name, rule] of Object.entries(nodes)) out[p ? `_${p}${name}` : name] = rule;
  out[`_${p}parens_with_rest`] = ($) => with_rest($, ref($, "several"));
  out[`_${p}filter`] = ($) => seq("if", ref($, "disjunction"));
  return out;
}

module.exports = grammar({
  name: "tsched",

  externals: ($) => [$._newline, $._reduce_of, $._reduce_by, $._scan_of, "step", $._never, $._error_sentinel],
  extras: ($) => [/[ \t\r\n]/, $.comment],
  // Whether parentheses have the parameters of an index map in them is known at the arrow behind them.
  conflicts: ($) => [[$._atom, $._bare], [$._p_atom, $._bare], [$._postfix, $._distribution], [$._bare, $._bares]],
  word: ($) => $.identifier,

  rules: {
    file: ($) => repeat($._item),

    _item: ($) =>
      choice(
        $.compute, $.reducer, $.intrinsic, $.target, $.const, $.module, $.space, $.schedule, $.prior, $.task, $.model,
        $.use, $.program,
      ),

    doc: ($) => repeat1($.doc_line),
    _lines: ($) => repeat1($._newline),
    // A newline that counts, where the statement goes on with a word that does not say so: the language refuses it.
    _broken: ($) => seq($._newline, $._never),

    // The compute layer.

    compute: ($) =>
      seq(
        optional($.doc), "compute", field("name", $._name), "(", optional($.tensor_params), optional($.attributes), ")", "->",
        $.outputs, optional($.dims), optional($.assumptions), lines($, $.stage),
      ),
    tensor_params: ($) => listed($.tensor_param),
    tensor_param: ($) => seq(field("name", $._name), ":", optional("const"), $.tensor_type, optional($.strides), optional($.updates)),
    updates: ($) => seq("updates", field("input", $._name)),
    strides: ($) => seq("strides", "[", $._exprs, "]"),
    outputs: ($) => list($.tensor_param),
    tensor_type: ($) => seq(field("type", $._name), optional($.shape)),
    shape: ($) => seq("[", $._exprs, "]"),
    attributes: ($) => seq(";", $._params),
    dims: ($) => seq("where", list(choice($.dim, $._disjunction))),
    dim: ($) => seq(field("name", $._name), "=", $._expr),
    assumptions: ($) => seq("assume", list($.assumption)),
    assumption: ($) => seq(field("name", $._name), choice(field("property", $._name), seq("in", $.range))),

    stage: ($) =>
      seq(
        optional("let"), choice($._place, seq("(", $.result, repeat1(seq(",", $.result)), ")")), repeat($.annotation), "=",
        $._expr,
      ),
    _place: ($) => seq(field("name", $._name), optional($._broken), optional(seq("[", $.index_specs, "]"))),
    result: ($) => choice($._place, $.wildcard),
    index_specs: ($) => listed($.index_spec),
    index_spec: ($) => seq(field("name", $._name), optional(seq("in", $._sum))),

    reducer: ($) =>
      seq(
        optional($.doc), "reducer", field("name", $._name), "(", $.operands, ",", $.operands, ")", "=", $._expr_or_tuple,
        "identity", $._expr_or_tuple, optional($.assume),
      ),
    operands: ($) => choice($._name, seq("(", $._name, repeat1(seq(",", $._name)), ")")),
    _expr_or_tuple: ($) => choice($._expr, $.tuple),
    tuple: ($) => seq("(", $._expr, repeat1(seq(",", $._expr)), optional(","), ")"),
    assume: ($) => seq("assume", list($._name)),

    intrinsic: ($) =>
      seq(optional($.doc), "intrinsic", field("name", $._name), $.desc, repeat($.layout), repeat($.lowering)),
    desc: ($) => seq("desc", "(", listed($.operand), ")", lines1($, $.effect)),
    operand: ($) => seq(field("name", $._name), ":", $.tensor_type, optional($.scope)),
    effect: ($) =>
      seq(
        field("name", $._name), optional($._broken), optional(seq("[", $.index_specs, "]")), choice("=", "+="), $._expr,
      ),
    layout: ($) =>
      seq("layout", $.string, "(", listed($._name), ")", "->", "(", listed($.place), ")"),
    place: ($) => seq(field("name", $._name), ":", $._expr),
    lowering: ($) => seq("lower", $._name, optional($.requires), choice("asm", "call"), $.string),
    requires: ($) => seq("requires", list($.string)),

    // The schedule layer.

    const: ($) => seq(optional($.doc), "const", field("name", $._name), "=", $._expr),
    module: ($) =>
      seq(optional($.doc), "module", field("name", $._name), "(", optional($._params), ")", optional($.when), $.body),
    when: ($) => seq("when", $._expr),
    _params: ($) => listed($.param),
    param: ($) => seq(field("name", $._name), optional($.param_type), optional(seq("=", $._expr))),
    param_type: ($) => seq(":", $.type),
    type: ($) => seq(field("name", $._name), optional(seq("(", optional($.types), ")"))),
    types: ($) => listed($.type),
    space: ($) =>
      seq(optional($.doc), "space", field("name", $._name), "for", $._name, lines($, $.rule)),
    rule: ($) => choice($._bare, $._rule),
    _rule: ($) => choice(alias($._rule_call, $.call), seq("(", $._rule, optional(","), ")")),
    _rule_call: ($) => seq(field("function", $._bare), "(", optional($.arguments), ")"),
    _bare: ($) => choice($._name, seq("(", $._bare, optional(","), ")")),
    schedule: ($) => seq(optional($.doc), "schedule", field("name", $._name), "for", $._name, $.body),
    prior: ($) =>
      seq(optional($.doc), "prior", field("name", $._name), "for", $._name, lines($, $.weighing)),
    weighing: ($) => seq($._name, "~", $._expr),
    target: ($) => seq(optional($.doc), "target", field("name", $._name), "=", $._name, "(", optional($._bindings), ")"),
    task: ($) =>
      seq(
        optional($.doc), "task", field("name", $._name), "=", $._name, "(", optional($._bindings), ")",
        optional($.occurring), optional(seq("with", $._name)),
      ),
    occurring: ($) => seq("where", list($._disjunction)),
    _bindings: ($) => listed($.binding),
    binding: ($) => seq(field("name", $._name), "=", choice($._expr, $.timed, $.like)),
    timed: ($) => seq($.range, "at", "[", $._exprs, "]"),
    like: ($) => seq($.range, "like", $._expr),
    model: ($) =>
      seq(
        optional($.doc), "model", field("name", $._name), "(", optional($.tensor_params), ")", "->", $.outputs,
        optional($.weights), lines($, $.stage),
      ),
    weights: ($) => seq("weights", $.string, "sha256", $.string, "(", optional($.tensor_params), ")"),
    use: ($) => seq("use", $._path, optional(seq(".", $.use_names))),
    _path: ($) => choice($._name, seq($._path, ".", field("attribute", $._name))),
    use_names: ($) => seq("{", listed($._name), "}"),

    body: ($) => lines($, $._statement),
    _statement: ($) => choice($.let, $.draw, $.either, $.maybe, $.try, $.if, $.select, $.yield, $.action),
    let: ($) => seq("let", $._pattern, "=", $._expr),
    draw: ($) => seq("let", $._name_pattern, "~", $._distribution, optional($.pin)),
    _distribution: ($) => choice($.call, seq("(", $._distribution, optional(","), ")")),
    pin: ($) => seq(":=", $._expr),
    _pattern: ($) => choice($._name_pattern, $.list_pattern),
    _name_pattern: ($) => choice($._name, $.wildcard),
    list_pattern: ($) => seq("[", listed($._name_pattern), "]"),
    either: ($) =>
      choice(
        seq("either", optional($.weight), $.body, repeat1(seq("or", optional($.weight), $.body))),
        seq("either", field("name", $._name), ":", $.branch, repeat1(seq("or", $.branch))),
      ),
    branch: ($) => seq(field("name", $._name), optional($.weight), $.body),
    maybe: ($) => seq("maybe", optional(seq($.weight, optional($._broken))), field("name", $._name), $.body),
    weight: ($) => seq("(", $._expr, ")"),
    try: ($) => seq("try", $.body, optional($.otherwise)),
    otherwise: ($) => seq("otherwise", $.body),
    if: ($) => seq("if", $._expr, $.body, optional($.else)),
    else: ($) => seq("else", choice($.body, $.if)),
    select: ($) => seq("select", optional($._broken), list($._name), lines1($, $.case)),
    case: ($) => seq(list(choice($._sum, $.range)), "=>", $.body),
    yield: ($) => seq("yield", $._expr),
    action: ($) => $._expr,

    // The program layer.

    program: ($) =>
      seq(
        optional($.doc), "program", field("name", $._name), "(", optional(alias($._p_tensor_params, $.tensor_params)), ")",
        optional($.sizes), repeat(alias($._p_annotation, $.annotation)), $._program_body,
      ),
    _program_body: ($) =>
      choice(lines($, choice($.buffer, $._program_stmt)), seq("{", optional($._lines), $.program_select, optional($._lines), "}")),
    program_select: ($) => seq("select", optional($._broken), list($._name), lines1($, $.program_case)),
    program_case: ($) =>
      seq(
        list(choice($._p_sum, alias($._p_range, $.range))), "=>", repeat(alias($._p_annotation, $.annotation)),
        $._program_body,
      ),
    _p_tensor_params: ($) => listed(alias($._p_tensor_param, $.tensor_param)),
    _p_tensor_param: ($) =>
      seq(
        field("name", $._name), ":", optional("const"), alias($._p_tensor_type, $.tensor_type),
        optional(alias($._p_strides, $.strides)), optional($.updates),
      ),
    _p_strides: ($) => seq("strides", "[", $._p_exprs, "]"),
    _p_tensor_type: ($) => seq(field("type", $._name), optional(alias($._p_shape, $.shape))),
    _p_shape: ($) => seq("[", $._p_exprs, "]"),
    sizes: ($) => seq("where", list(choice($.size, $._p_disjunction))),
    size: ($) => seq(field("name", $._name), "in", choice(alias($._p_range, $.range), alias($._p_timed, $.timed), alias($._p_like, $.like))),
    _p_timed: ($) => seq(alias($._p_range, $.range), "at", "[", $._p_exprs, "]"),
    _p_like: ($) => seq(alias($._p_range, $.range), "like", $._p_expr),
    _program_stmt: ($) => choice($.loop, $.block),
    buffer: ($) =>
      seq(
        "buffer", field("name", $._name), ":", alias($._p_tensor_type, $.tensor_type), optional($.scope),
        repeat(alias($._p_annotation, $.annotation)),
      ),
    scope: ($) => seq("in", $.string),
    loop: ($) =>
      seq(
        optional(
          seq(choice("parallel", "vectorized", "unrolled", "pipelined", "tensorized", $.bound), optional($._broken)),
        ),
        "for", list($.header),
        repeat(alias($._p_annotation, $.annotation)), lines($, $._program_stmt),
      ),
    bound: ($) => seq("bound", "(", $.string, ")"),
    header: ($) => seq(field("name", $._name), "in", $._p_sum),
    annotation: ($) => seq("@", "(", $.string, ",", $._expr, ")"),
    _p_annotation: ($) => seq("@", "(", $.string, ",", $._p_expr, ")"),
    block: ($) =>
      seq(
        "block", field("name", $._name), repeat(alias($._p_annotation, $.annotation)),
        "{", optional($._lines),
        optional(
          seq(
            choice($._block_lines, seq(optional(seq($._block_lines, $._lines)), $.init, optional(seq($._lines, $._block_lines)))),
            optional($._lines),
          ),
        ),
        "}",
      ),
    _block_lines: ($) => choice($._block_line, seq($._block_lines, $._lines, $._block_line)),
    _block_line: ($) => choice($.iterator, $.guard, $.store),
    iterator: ($) =>
      seq(choice("spatial", "reduce", "scan"), optional($._broken), field("name", $._name), "in", $._p_sum, "=", $._p_expr),
    guard: ($) => seq("where", $._p_expr),
    init: ($) => seq("init", lines1($, $.store)),
    store: ($) => seq(field("name", $._name), optional($._broken), optional(seq("[", $._p_exprs, "]")), "=", $._p_expr),

    // Expressions.

    ...expressions("", ["reduction", "reduction_by", "scan"]),
    ...expressions("p_", []),

    reduction: ($) => seq(alias($._reduce_of, $.reducer_name), "[", $.index_specs, "]", $._expr),
    reduction_by: ($) => seq(alias($._reduce_by, "reduce"), $._name, "[", $.index_specs, "]", $._expr_or_tuple),
    scan: ($) => seq(alias($._scan_of, "scan"), "[", $.index_spec, "]", "init", $._expr, "step", $._expr),

    _params_of_map: ($) => seq("(", optional(seq($._bares, optional(","))), ")"),
    _params_with_rest: ($) => with_rest($, $._bares),
    _bares: ($) => choice($._bare, seq($._bares, ",", $._bare)),

    // Words.

    _name: ($) =>
      choice($.identifier, prec(1, alias(choice(...SOFT), $.identifier)), seq(choice(...RESERVED, ...VALUES), $._never)),
    identifier: () => /[A-Za-z_][A-Za-z0-9_]*/,
    integer: () => /[0-9]+/,
    float: () => token(choice(/[0-9]+\.[0-9]+([eE][+-]?[0-9]+)?/, /[0-9]+[eE][+-]?[0-9]+/)),
    string: ($) => seq('"', repeat(choice($.string_text, $.escape)), token.immediate('"')),
    string_text: () => token.immediate(prec(1, /[^"\\\r\n]+/)),
    escape: () => token.immediate(/\\(["\\ntr]|u\{0*([0-9A-Fa-f]{1,3}|[0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2}|[1-9A-Fa-f][0-9A-Fa-f]{4}|10[0-9A-Fa-f]{4})\})/),
    wildcard: () => "_",
    comparator: () => token(choice("<", "<=", ">", ">=", "==", "!=")),
    rest: () => "...",
    doc_line: () => token(/\/\/\/([^\/\r\n][^\r\n]*)?/),
    comment: () => token(/\/\/[^\r\n]*/),
  },
});
