// The newlines that end a statement, and the words that begin a reduction. Both depend on what comes later in the text, as in
// tensorc_dsl/syntax/layout.py, whose rules these are; grammar/tsched.lark says them in prose.
//
// Nothing is remembered from one word to the next: a newline is given exactly where the parser can take one.

#include <string.h>
#include <tree_sitter/parser.h>

enum Word { NEWLINE, REDUCE_OF, REDUCE_BY, SCAN_OF, STEP, NEVER, ERROR_SENTINEL };

enum { MAX_DEPTH = 100, LONGEST = 16 };

static const char *const REDUCERS[] = {"sum", "prod", "min", "max", "any", "all", "argmin", "argmax"};
static const char *const NO_NAMES[] = {"and", "either", "else", "for",   "if", "in",  "let",  "maybe", "not",
                                       "or",  "where",  "yield", "false", "_",  "inf", "nan", "true"};

#define COUNT(list) (sizeof(list) / sizeof(*(list)))

static bool among(const char *word, const char *const *list, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(word, list[i]) == 0) return true;
  }
  return false;
}

static bool begins_name(int32_t c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; }

static bool in_name(int32_t c) { return begins_name(c) || (c >= '0' && c <= '9'); }

static void next(TSLexer *lexer) { lexer->advance(lexer, false); }

// Reads a name; of one that is longer than all words of the grammar, the beginning.
static void read_name(TSLexer *lexer, char word[LONGEST + 1]) {
  int n = 0;
  for (; in_name(lexer->lookahead); next(lexer)) {
    if (n < LONGEST) word[n++] = (char)lexer->lookahead;
  }
  word[n] = 0;
}

static void over_blanks(TSLexer *lexer) {
  while (lexer->lookahead == ' ' || lexer->lookahead == '\t') next(lexer);
}

static void over_line(TSLexer *lexer) {
  while (lexer->lookahead != '\n' && lexer->lookahead != '\r' && !lexer->eof(lexer)) next(lexer);
}

// Goes over blanks, newlines and comments. Returns true at a `/` that begins no comment, behind which the lexer stands then.
static bool over_space(TSLexer *lexer) {
  for (;;) {
    switch (lexer->lookahead) {
      case ' ': case '\t': case '\r': case '\n':
        next(lexer);
        break;
      case '/':
        next(lexer);
        if (lexer->lookahead != '/') return true;
        over_line(lexer);
        break;
      default:
        return false;
    }
  }
}

static void over_string(TSLexer *lexer) {
  next(lexer);
  while (lexer->lookahead != '"' && lexer->lookahead != '\n' && !lexer->eof(lexer)) {
    if (lexer->lookahead == '\\') next(lexer);
    if (lexer->lookahead != '\n' && !lexer->eof(lexer)) next(lexer);
  }
  if (lexer->lookahead == '"') next(lexer);
}

// The brackets that are open since some place.
typedef struct {
  char closers[MAX_DEPTH];
  int depth;
} Open;

// Takes the word at the lexer; false if it is a closing bracket that does not match, or is nested too deeply.
static bool take(TSLexer *lexer, Open *open, char name[LONGEST + 1]) {
  int32_t c = lexer->lookahead;
  name[0] = 0;
  if (begins_name(c)) {
    read_name(lexer, name);
    return true;
  }
  switch (c) {
    case '"':
      over_string(lexer);
      return true;
    case '(': case '[': case '{':
      if (open->depth == MAX_DEPTH) return false;
      open->closers[open->depth++] = c == '(' ? ')' : c == '[' ? ']' : '}';
      break;
    case ')': case ']': case '}':
      if (open->depth == 0 || open->closers[--open->depth] != c) return false;
      break;
    default:
      break;
  }
  next(lexer);
  return true;
}

// Goes over the `[` at the lexer and all up to its `]`; false if there is none.
static bool over_subscript(TSLexer *lexer) {
  Open open = {.depth = 0};
  char name[LONGEST + 1];
  do {
    if (!take(lexer, &open, name)) return false;
    over_space(lexer);
  } while (open.depth > 0 && !lexer->eof(lexer));
  return open.depth == 0;
}

// Whether the `else` of an `if`, behind which the lexer stands, comes before any `{` of a statement.
static bool is_conditional(TSLexer *lexer) {
  Open open = {.depth = 0};
  char name[LONGEST + 1];
  for (int ifs = 1; ifs > 0;) {
    over_space(lexer);
    if (lexer->eof(lexer)) return false;
    if (open.depth == 0 && (lexer->lookahead == '{' || lexer->lookahead == ';')) return false;
    if (!take(lexer, &open, name)) return false;
    if (open.depth == 0) ifs += strcmp(name, "if") == 0 ? 1 : strcmp(name, "else") == 0 ? -1 : 0;
  }
  return true;
}

// Whether the word behind a newline goes on with the line above.
static bool goes_on(TSLexer *lexer, const bool *valid) {
  if (over_space(lexer)) return true;
  char word[LONGEST + 1];
  switch (lexer->lookahead) {
    case '+': case '-': case '*': case '%': case '<': case '>': case '=': case '.': case ',': case ':': case '~': case '@':
    case '{': case ')': case ']': case '}':
      return true;
    case '!':
      next(lexer);
      return lexer->lookahead == '=';
    default:
      break;
  }
  if (!begins_name(lexer->lookahead)) return false;
  read_name(lexer, word);
  static const char *const WORDS[] = {"and", "or", "else", "in"};
  if (strcmp(word, "if") == 0) return is_conditional(lexer);
  if (strcmp(word, "otherwise") == 0) return !over_space(lexer) && lexer->lookahead == '{';
  return among(word, WORDS, COUNT(WORDS)) || (strcmp(word, "step") == 0 && valid[STEP] && !valid[ERROR_SENTINEL]);
}

// Whether the name at the lexer begins a reduction or a scan; its kind is the result then.
static bool begins_reduction(TSLexer *lexer, const bool *valid) {
  char word[LONGEST + 1];
  read_name(lexer, word);
  lexer->mark_end(lexer);
  over_blanks(lexer);
  if (strcmp(word, "reduce") == 0) {
    lexer->result_symbol = REDUCE_BY;
    read_name(lexer, word);
    over_blanks(lexer);
    return valid[REDUCE_BY] && word[0] && !among(word, NO_NAMES, COUNT(NO_NAMES)) && lexer->lookahead == '[' &&
           over_subscript(lexer);
  }
  bool is_scan = strcmp(word, "scan") == 0;
  lexer->result_symbol = is_scan ? SCAN_OF : REDUCE_OF;
  if (!valid[lexer->result_symbol] || !(is_scan || among(word, REDUCERS, COUNT(REDUCERS)))) return false;
  if (lexer->lookahead != '[' || !over_subscript(lexer)) return false;
  if (is_scan) {
    read_name(lexer, word);
    return strcmp(word, "init") == 0;
  }
  // `let sum[i] = …` and `let sum[i] @("key", 1) = …` define a stage of that name.
  int32_t c = lexer->lookahead;
  if (c != '=' && c != '+') return c != '@';
  next(lexer);
  return (c == '=') == (lexer->lookahead == '=');
}

bool tree_sitter_tsched_external_scanner_scan(void *payload, TSLexer *lexer, const bool *valid) {
  (void)payload;
  for (;; lexer->advance(lexer, true)) {
    int32_t c = lexer->lookahead;
    if (valid[NEWLINE] && (c == '\n' || c == '\r' || c == ';')) {
      next(lexer);
      lexer->mark_end(lexer);
      lexer->result_symbol = NEWLINE;
      return c == ';' || !goes_on(lexer, valid);
    }
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') break;
  }
  bool reduction = valid[REDUCE_OF] || valid[REDUCE_BY] || valid[SCAN_OF];
  return reduction && begins_name(lexer->lookahead) && begins_reduction(lexer, valid);
}

void *tree_sitter_tsched_external_scanner_create(void) { return NULL; }
void tree_sitter_tsched_external_scanner_destroy(void *payload) { (void)payload; }
unsigned tree_sitter_tsched_external_scanner_serialize(void *payload, char *buffer) {
  (void)payload;
  (void)buffer;
  return 0;
}
void tree_sitter_tsched_external_scanner_deserialize(void *payload, const char *buffer, unsigned length) {
  (void)payload;
  (void)buffer;
  (void)length;
}
