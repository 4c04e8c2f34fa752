/**
 * The texts of a file that people read: docstrings, comments, messages, titles of tests, prose of Markdown.
 *
 * A text keeps the length that it has in its file: code, markers of comments and escapes in it become blanks. So a position
 * in a text is one in the file.
 */
import { parseSync, Visitor } from 'oxc-parser';

const blank = (text) => text.replace(/[^\n]/g, ' ');
const withoutCode = (text) => text.replace(/`[^`]*`|@param \S+/g, blank);

/** A text and where it begins. Its kind: `docstring` (the first sentence), `comment` (the rest), `message`, `title`, `prose`. */
const textAt = (position, kind, text) => ({ kind, text: withoutCode(text), position });

const IS_TEST = /\.test\.ts$/;
/** Functions whose first argument is a title. */
const TITLED = new Set(['test', 'it', 'describe']);
/** Several words, so not a name or a path. */
const IS_PROSE = /\p{L}{2,}[,:;]?\s+\p{L}{2,}/u;
/** The same of a template, whose expressions may stand for words. */
const IS_PROSE_OF_TEMPLATE = /(?<=^|\s)\p{L}{2,}[,:;]?(?=\s|$)/u;
const ESCAPE = /\\[nrt]/g;

/** The first sentence of a doc comment; undefined if it only has tags. */
function firstSentence(text) {
  return text.trim().startsWith('@')
    ? undefined
    : /^[\s\S]*?[.:](?=\s|$)|^[\s\S]*?(?=\n\s*\n|\n\s*@|$)/.exec(text)?.[0];
}

/** `test`, of `test(…)`, `test.each(…)(…)`, `describe.skipIf(…)(…)`. */
function calledName(callee) {
  if (callee.type === 'Identifier') return callee.name;
  if (callee.type === 'MemberExpression') return calledName(callee.object);
  return callee.type === 'CallExpression' ? calledName(callee.callee) : undefined;
}

/** Line comments that follow each other are one text, so that a phrase may go over their lines. */
function textsOfComments(code, comments) {
  const found = [];
  let line;
  for (const { type, start, end } of comments) {
    if (type === 'Line') {
      const text = `  ${code.slice(start + 2, end)}`;
      const between = line && code.slice(line.position + line.text.length, start);
      if (between?.trim() === '') line.text += between + text;
      else {
        line = { position: start, kind: 'comment', text };
        found.push(line);
      }
      continue;
    }
    line = undefined;
    const text = code.slice(start, end).replace(/^\/\*+|^\s*\*+(?!\/)|\*+\/$/gm, blank);
    const sentence = code.startsWith('/**', start) ? firstSentence(text) : undefined;
    if (sentence) found.push({ position: start, kind: 'docstring', text: sentence });
    const rest = sentence?.length ?? 0;
    found.push({ position: start + rest, kind: 'comment', text: text.slice(rest) });
  }
  return found.map(({ position, kind, text }) => textAt(position, kind, text));
}

/** Texts of a TypeScript or JavaScript file. The first argument of a test is a title, other strings are messages. */
export function textsOfCode(path, code) {
  const { program, comments, errors } = parseSync(path, code);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0].message}`);
  const found = textsOfComments(code, comments);
  const titles = new Set();
  const add = ({ type, start, end, expressions }, kind) => {
    let text = code.slice(start, end).replace(/^[`'"]|[`'"]$/g, ' ');
    for (const part of (type === 'TemplateLiteral' && expressions) || []) {
      const [from, to] = [part.start - start, part.end - start];
      text = text.slice(0, from) + blank(text.slice(from, to)) + text.slice(to);
    }
    text = text.replace(ESCAPE, blank);
    if ((type === 'TemplateLiteral' ? IS_PROSE_OF_TEMPLATE : IS_PROSE).test(text))
      found.push(textAt(start, titles.has(start) ? 'title' : kind, text));
  };
  const isTest = IS_TEST.test(path);
  new Visitor({
    CallExpression({ callee, arguments: [first] }) {
      if (isTest && first && TITLED.has(calledName(callee))) titles.add(first.start);
    },
    Literal(node) {
      if (typeof node.value === 'string') add(node, 'message');
    },
    TemplateLiteral(node) {
      add(node, 'message');
    },
    JSXText(node) {
      add(node, 'message');
    },
  }).visit(program);
  return found;
}

/** Exported classes of a file without a doc comment: names and positions. */
export function bareClassesOf(path, code) {
  const { program, comments } = parseSync(path, code);
  const isDocumented = (start) =>
    comments.some(
      ({ type, value, end }) =>
        type === 'Block' && value.startsWith('*') && end <= start && code.slice(end, start).trim() === '',
    );
  return program.body
    .filter(({ type, start }) => type === 'ExportNamedDeclaration' && !isDocumented(start))
    .filter(({ declaration }) => declaration?.type === 'ClassDeclaration')
    .map(({ declaration, start }) => ({ name: declaration.id.name, position: start }));
}

/** Texts of a Markdown file: its paragraphs, lists and tables without code, and the comments of shell commands in it. */
export function textsOfMarkdown(markdown) {
  const fenced = /^(```|~~~)[\s\S]*?^\1/gm;
  const comments = [...markdown.matchAll(fenced)].flatMap(({ 0: block, index }) =>
    [...block.matchAll(/ # .*/g)].map((comment) => textAt(index + comment.index, 'comment', comment[0])),
  );
  const prose = markdown
    .replace(fenced, blank)
    .replace(/`[^`\n]*`/g, blank)
    .replace(/\]\([^)]*\)/g, blank);
  return [textAt(0, 'prose', prose), ...comments];
}

/** A comment or a string of C and C++. */
const OF_C = /\/\/.*(?:\n[ \t]*\/\/.*)*|\/\*[\s\S]*?\*\/|"(?:\\.|[^"\\\n])*"/g;
/** A comment or a string of shell scripts, Python and YAML. */
const OF_SCRIPTS = /(?<=^|\s)#.*(?:\n[ \t]*#.*)*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/gm;
/** A string of JSON, or a comment. */
const OF_JSON = /(?<=^|\s)\/\/.*|"(?:\\.|[^"\\\n])*"/gm;
/** A text between two tags. */
const OF_SVG = /(?<=>)[^<]+/g;

/** Files of other languages: how their texts are found. */
export const OTHERS = [
  { path: /\.(c|cc|h|css|map)$/, texts: OF_C },
  { path: /\.(py|sh|yaml|grit|gyp)$|^\.ci\/run$|\/init$/, texts: OF_SCRIPTS },
  { path: /\.jsonc?$/, texts: OF_JSON },
  { path: /\.svg$/, texts: OF_SVG },
];

/** Texts of a file of another language. */
export function textsOfOther(path, content) {
  const { texts } = OTHERS.find((other) => other.path.test(path));
  return [...content.matchAll(texts)]
    .map(({ 0: text, index }) => [
      index,
      text.replace(/^[ \t]*(?:\/\/+|#|\*)/gm, blank).replace(ESCAPE, blank),
    ])
    .filter(([, text]) => IS_PROSE.test(text))
    .map(([index, text]) => textAt(index, /^["']/.test(text) ? 'message' : 'comment', text));
}
