/** The texts of a file that people read: docstrings, messages, titles of tests, prose of Markdown. */
import { parseSync, Visitor } from 'oxc-parser';

/** A text and the line on which it begins. Its kind: `docstring` (the first sentence), `comment` (the rest), `message`, `title`, `prose`. */
const textAt = (code, position, kind, text) => ({
  kind,
  text: text
    .replace(/`[^`]*`/g, '`…`')
    .replace(/\s+/g, ' ')
    .trim(),
  line: code.slice(0, position).split('\n').length,
});

const IS_TEST = /\.test\.ts$/;
/** Functions whose first argument is a title. */
const TITLED = new Set(['test', 'it', 'describe']);
/** Several words, so not a name or a path. */
const IS_PROSE = /\p{L}{2,}[,:;]? \p{L}{2,}/u;

/** The first sentence of a doc comment; undefined if it only has tags. */
function firstSentence(comment) {
  const text = comment.replace(/^\s*\*+ ?/gm, '').trim();
  return text.startsWith('@')
    ? undefined
    : /^[\s\S]*?[.:](?=\s|$)|^[\s\S]*?(?=\n\s*\n|\n@|$)/.exec(text)?.[0];
}

/** `test`, of `test(…)`, `test.each(…)(…)`, `describe.skipIf(…)(…)`. */
function calledName(callee) {
  if (callee.type === 'Identifier') return callee.name;
  if (callee.type === 'MemberExpression') return calledName(callee.object);
  return callee.type === 'CallExpression' ? calledName(callee.callee) : undefined;
}

/** Texts of a TypeScript or JavaScript file. Messages are not looked for in tests, nor titles elsewhere. */
export function textsOfCode(path, code) {
  const { program, comments, errors } = parseSync(path, code);
  if (errors.length > 0) throw new Error(`${path}: ${errors[0].message}`);
  const found = [];
  for (const { type, value, start } of comments) {
    const sentence = type === 'Block' && value.startsWith('*') ? firstSentence(value) : undefined;
    if (sentence) found.push(textAt(code, start, 'docstring', sentence));
    found.push(textAt(code, start, 'comment', value.replace(/^\s*\*+ ?/gm, '').slice(sentence?.length ?? 0)));
  }
  const add = (kind, position, text) => IS_PROSE.test(text) && found.push(textAt(code, position, kind, text));
  const written = (node) =>
    node?.type === 'TemplateLiteral' ? node.quasis.map(({ value }) => value.raw).join('…') : node?.value;
  const isTest = IS_TEST.test(path);
  new Visitor({
    CallExpression({ callee, arguments: [first] }) {
      if (!isTest || !TITLED.has(calledName(callee))) return;
      const title = written(first);
      if (typeof title === 'string') add('title', first.start, title);
    },
    Literal(node) {
      if (!isTest && typeof node.value === 'string') add('message', node.start, node.value);
    },
    TemplateLiteral(node) {
      if (!isTest) add('message', node.start, written(node));
    },
    JSXText(node) {
      add('message', node.start, node.value);
    },
  }).visit(program);
  return found;
}

/** Exported classes of a file without a doc comment: names and lines. */
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
    .map(({ declaration, start }) => ({
      name: declaration.id.name,
      line: code.slice(0, start).split('\n').length,
    }));
}

/** Texts of a Markdown file: its paragraphs, lists and tables without code. */
export function textsOfMarkdown(markdown) {
  const blank = (text) => text.replace(/[^\n]/g, ' ');
  const prose = markdown
    .replace(/^(```|~~~)[\s\S]*?^\1/gm, blank)
    .replace(/`[^`\n]*`/g, blank)
    .replace(/\]\([^)]*\)/g, blank);
  return prose.split('\n').map((text, i) => ({ kind: 'prose', text, line: i + 1 }));
}
