/**
 * The language of `--filter`: tests of fields, joined by `and`, `or` and `not`, in parentheses where needed.
 *
 *     test   field                        a flag: nak
 *            field op value               op: == != < <= > >= contains; = is ==
 *     value  12  0x1f  1.5  20ms  64K     numbers, with units of time (s, ms, us, ns) or of size (K, M, G: powers of 1024)
 *            10.0.0.0/8  fe80::1          addresses and prefixes
 *            word  "two words"            texts, in letters of any case
 *
 * The tables of fields are elsewhere; here is what they have in common.
 */

/** A field of an item: what it is compared with. */
export type Field<T> =
  | { kind: 'flag'; of: (item: T) => boolean }
  /** Several values, where a field stands for both ends: one that fits is enough, and `!=` is that none does. */
  | { kind: 'number'; of: (item: T) => number | readonly number[] }
  | { kind: 'text'; of: (item: T) => string | readonly string[] }
  /** Makes a test of an address or prefix; throws a RangeError for any other text. */
  | { kind: 'address'; test: (text: string) => (item: T) => boolean };

export type Fields<T> = Readonly<Record<string, Field<T>>>;

/** A filter that can't be understood. */
export class FilterError extends Error {
  override readonly name = 'FilterError';
  readonly code = 'ERR_CAPTURE_FILTER';
  /** Where in the text, from 0. */
  readonly position: number;

  constructor(message: string, position: number) {
    super(message);
    this.position = position;
  }
}

interface Token {
  kind: 'word' | 'text' | 'op' | 'open' | 'close' | 'end';
  text: string;
  at: number;
}

const TOKEN =
  /\s*(?:(?<open>\()|(?<close>\))|(?<op>==|!=|<=|>=|=|<|>|&&|\|\||!)|"(?<text>[^"]*)"|(?<word>[^\s()=!<>&|"]+))/y;

const COMPARISONS: ReadonlySet<string> = new Set(['==', '=', '!=', '<', '<=', '>', '>=', 'contains']);
/** Parentheses and negations within each other: a text of many must not exhaust the stack. */
const MAX_DEPTH = 100;

/**
 * Compiles a filter to a function.
 * @throws FilterError with the position, and with what was expected there
 */
export function compileFilter<T>(text: string, fields: Fields<T>): (item: T) => boolean {
  return new Parser(text, fields).whole();
}

class Parser<T> {
  readonly #fields: Fields<T>;
  readonly #tokens: Token[];
  #next = 0;
  #depth = 0;

  constructor(text: string, fields: Fields<T>) {
    this.#fields = fields;
    this.#tokens = tokensOf(text);
  }

  whole(): (item: T) => boolean {
    const test = this.#or();
    const rest = this.#take();
    if (rest.kind !== 'end') throw unexpected(rest, 'and, or, or the end');
    return test;
  }

  #or(): (item: T) => boolean {
    const tests = [this.#and()];
    while (this.#takeIf('or', '||')) tests.push(this.#and());
    return tests.length === 1 ? tests[0] : (item) => tests.some((test) => test(item));
  }

  #and(): (item: T) => boolean {
    const tests = [this.#not()];
    while (this.#takeIf('and', '&&')) tests.push(this.#not());
    return tests.length === 1 ? tests[0] : (item) => tests.every((test) => test(item));
  }

  #not(): (item: T) => boolean {
    const token = this.#take();
    if (token.text === '!' || (token.kind === 'word' && token.text === 'not')) {
      const test = this.#deeper(token, () => this.#not());
      return (item) => !test(item);
    }
    if (token.kind === 'open') {
      const test = this.#deeper(token, () => this.#or());
      const close = this.#take();
      if (close.kind !== 'close') throw unexpected(close, 'and, or, or )');
      return test;
    }
    return this.#test(token);
  }

  #deeper<R>({ at }: Token, parse: () => R): R {
    if (++this.#depth > MAX_DEPTH) throw new FilterError(`more than ${MAX_DEPTH} levels`, at);
    const result = parse();
    this.#depth--;
    return result;
  }

  #test(name: Token): (item: T) => boolean {
    const field =
      name.kind === 'word' && Object.hasOwn(this.#fields, name.text) ? this.#fields[name.text] : undefined;
    if (field === undefined)
      throw unexpected(name, `a field (${Object.keys(this.#fields).join(', ')}), not, or (`);
    const { text: op } = this.#tokens[this.#next];
    if (!COMPARISONS.has(op)) {
      if (field.kind === 'flag') return field.of;
      throw unexpected(this.#take(), `a comparison of ${name.text} (${[...COMPARISONS].join(' ')})`);
    }
    if (field.kind === 'flag')
      throw unexpected(this.#take(), `no comparison, because ${name.text} is a flag`);
    this.#take();
    const value = this.#take();
    if (value.kind !== 'word' && value.kind !== 'text') throw unexpected(value, 'a value');
    return comparison(field, op === '=' ? '==' : op, value, name);
  }

  #take(): Token {
    const token = this.#tokens[this.#next];
    if (token.kind !== 'end') this.#next++;
    return token;
  }

  #takeIf(...texts: string[]): boolean {
    const token = this.#tokens[this.#next];
    if (token.kind === 'text' || !texts.includes(token.text)) return false;
    this.#next++;
    return true;
  }
}

function tokensOf(text: string): Token[] {
  const tokens: Token[] = [];
  TOKEN.lastIndex = 0;
  for (let at = 0; text.slice(at).trim() !== ''; at = TOKEN.lastIndex) {
    TOKEN.lastIndex = at;
    const groups = TOKEN.exec(text)?.groups;
    if (groups === undefined) throw new FilterError(`can't be read from here: ${text.slice(at).trim()}`, at);
    const [kind, found] = Object.entries(groups).find(([, value]) => value !== undefined)!;
    tokens.push({ kind: kind as Token['kind'], text: found, at });
  }
  tokens.push({ kind: 'end', text: '', at: text.length });
  return tokens;
}

const unexpected = ({ kind, text, at }: Token, expected: string): FilterError =>
  new FilterError(
    `expected ${expected}; ${kind === 'end' ? 'the expression ends there' : `found "${text}"`}`,
    at,
  );

function comparison<T>(
  field: Exclude<Field<T>, { kind: 'flag' }>,
  op: string,
  value: Token,
  name: Token,
): (item: T) => boolean {
  if (field.kind === 'address') return addressTest(field, op, value, name);
  if (field.kind === 'text') return textTest(field, op, value, name);
  if (op === 'contains') throw unexpected(value, `a comparison of numbers, because ${name.text} is a number`);
  const wanted = numberOf(value.text);
  if (Number.isNaN(wanted)) throw unexpected(value, `a number to compare ${name.text} with`);
  if (op === '!=') return (item) => !some(field.of(item), (each) => each === wanted);
  const fits = NUMBER_TESTS[op];
  return (item) => some(field.of(item), (each) => fits(each, wanted));
}

const NUMBER_TESTS: Readonly<Record<string, (x: number, y: number) => boolean>> = {
  '==': (x, y) => x === y,
  '<': (x, y) => x < y,
  '<=': (x, y) => x <= y,
  '>': (x, y) => x > y,
  '>=': (x, y) => x >= y,
};

function addressTest<T>(
  field: Extract<Field<T>, { kind: 'address' }>,
  op: string,
  value: Token,
  name: Token,
): (item: T) => boolean {
  if (op !== '==' && op !== '!=') throw unexpected(value, `== or != for the address ${name.text}`);
  let test: (item: T) => boolean;
  try {
    test = field.test(value.text);
  } catch {
    throw unexpected(value, 'an address, or a prefix such as 10.0.0.0/8');
  }
  return op === '==' ? test : (item) => !test(item);
}

function textTest<T>(
  { of }: Extract<Field<T>, { kind: 'text' }>,
  op: string,
  value: Token,
  name: Token,
): (item: T) => boolean {
  const wanted = value.text.toLowerCase();
  if (op === 'contains') return (item) => some(of(item), (each) => each.toLowerCase().includes(wanted));
  if (op !== '==' && op !== '!=') throw unexpected(value, `==, != or contains for the text ${name.text}`);
  const isEqual = (item: T) => some(of(item), (each) => each.toLowerCase() === wanted);
  return op === '==' ? isEqual : (item) => !isEqual(item);
}

function some<V extends number | string>(values: V | readonly V[], test: (value: V) => boolean): boolean {
  return typeof values === 'object' ? values.some(test) : test(values);
}

const UNITS: Readonly<Record<string, number>> = {
  '': 1,
  s: 1,
  ms: 1e-3,
  us: 1e-6,
  µs: 1e-6,
  ns: 1e-9,
  k: 2 ** 10,
  m: 2 ** 20,
  g: 2 ** 30,
};

/** NaN for what is no number. */
function numberOf(text: string): number {
  if (/^0x[0-9a-f]+$/i.test(text)) return Number(text);
  const match = /^(-?\d+(?:\.\d+)?)([a-zµ]*)$/i.exec(text);
  const unit = match === null ? undefined : UNITS[match[2].toLowerCase()];
  return unit === undefined ? Number.NaN : Number(match![1]) * unit;
}
