/**
 * Writers of each field, read from the syntax tree of `packages/transport`: state has one owner.
 *
 * - A field of a class is `#private`, or `readonly`. A public `readonly` field is no array, typed array, Map or Set: who has those can
 *   write them.
 * - Nothing has a setter; no getter or method returns a private array, typed array, Map or Set as it is, unless its type is
 *   readonly.
 * - A `readonly` field changes by `(this as Own<Class>).field = …`, in its own class alone (transport/own.ts).
 * - A member is assigned, updated or deleted by `this` alone: `x.y = …`, `this.#part.y++` and `delete x.y` write the state of somebody
 *   else. Elements (`x[i] = …`) are not members; whether a class may write an array is decided by who has it. An object that the
 *   function itself has made, a literal, is its own; so is the length of an array in a private field of its class.
 * - Counters are added to, which is no write: `….counters.name++` and `+=`. One file adds to each, where that happens which it counts,
 *   and nothing that decides reads one (`countsIn`).
 */
import { parseSync } from 'oxc-parser';

export interface Violation {
  /** `Class.member`, or the expression that is written. */
  what: string;
  rule: 'mutable field' | 'exposed collection' | 'setter' | 'foreign write';
  line: number;
}

interface Node {
  type: string;
  start: number;
  end: number;
  [key: string]: unknown;
}

const COLLECTIONS = /^(Array|Map|Set|WeakMap|WeakSet|DataView|(Big)?(Int|Uint|Float)\d+(Clamped)?Array)$/;

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && typeof (value as Node).type === 'string';

function* children(node: Node): Generator<Node> {
  for (const value of Object.values(node)) {
    if (Array.isArray(value)) yield* value.filter(isNode);
    else if (isNode(value)) yield value;
  }
}

/** Whether a field is an array, typed array, Map or Set that can be written, by its type or initial value. */
function isCollection(field: Node): boolean {
  const annotation = (field.typeAnnotation as Node | null)?.typeAnnotation as Node | undefined;
  if (annotation) return isMutableType(annotation);
  const value = field.value as Node | null;
  if (!value) return false;
  if (value.type === 'ArrayExpression') return true;
  let made = value;
  // `new Float64Array(4).fill(0)`
  while (made.type === 'CallExpression' && (made.callee as Node).type === 'MemberExpression') {
    made = (made.callee as Node).object as Node;
  }
  return made.type === 'NewExpression' && COLLECTIONS.test(String((made.callee as Node).name));
}

function isMutableType(type: Node): boolean {
  if (type.type === 'TSArrayType' || type.type === 'TSTupleType') return true;
  if (type.type === 'TSUnionType') return (type.types as Node[]).some(isMutableType);
  return type.type === 'TSTypeReference' && COLLECTIONS.test(String((type.typeName as Node).name));
}

function isReadonlyType(node: unknown): boolean {
  const type = (node as Node | null)?.typeAnnotation as Node | undefined;
  if (!type) return false;
  if (type.type === 'TSTypeOperator') return type.operator === 'readonly';
  return type.type === 'TSTypeReference' && /^Readonly/.test(String((type.typeName as Node).name));
}

const nameOf = (key: Node): string =>
  key.type === 'PrivateIdentifier' ? `#${key.name}` : String(key.name ?? key.value);

/** Violations of the rules in one file. */
export function violationsIn(source: string): Violation[] {
  const { program, errors } = parseSync('file.ts', source);
  if (errors.length > 0) throw new Error(errors[0].message);
  const found: Violation[] = [];
  const lineOf = (node: Node) => source.slice(0, node.start).split('\n').length;
  const report = (rule: Violation['rule'], what: string, node: Node) =>
    found.push({ what, rule, line: lineOf(node) });

  const walkClass = (node: Node) => {
    const name = String((node.id as Node | null)?.name ?? 'anonymous');
    const members = (node.body as Node).body as Node[];
    const privateCollections = new Set<string>();
    for (const member of members) {
      if (member.type !== 'PropertyDefinition' || member.declare) continue;
      const key = member.key as Node;
      const what = `${name}.${nameOf(key)}`;
      if (key.type === 'PrivateIdentifier') {
        if (isCollection(member)) privateCollections.add(nameOf(key));
        continue;
      }
      if (!member.readonly) report('mutable field', what, member);
      else if (isCollection(member) && !isReadonlyType(member.typeAnnotation)) {
        report('exposed collection', what, member);
      }
    }
    for (const member of members) {
      if (member.type !== 'MethodDefinition') continue;
      const what = `${name}.${nameOf(member.key as Node)}`;
      if (member.kind === 'set') report('setter', what, member);
      const body = member.value as Node;
      for (const parameter of (body.params as Node[]) ?? []) {
        if (parameter.type === 'TSParameterProperty' && !parameter.readonly) {
          report('mutable field', `${name}.${nameOf(parameter.parameter as Node)}`, parameter);
        }
      }
      if ((member.key as Node).type === 'PrivateIdentifier' || isReadonlyType(body.returnType)) continue;
      for (const returned of returnsOf(body)) {
        const argument = returned.argument as Node | null;
        if (argument?.type !== 'MemberExpression' || (argument.object as Node).type !== 'ThisExpression')
          continue;
        if (privateCollections.has(nameOf(argument.property as Node)))
          report('exposed collection', what, member);
      }
    }
  };

  /** @param own names of objects that the function around has made itself */
  const walk = (node: Node, own: ReadonlySet<string>) => {
    let mine = own;
    if (/^(ArrowFunctionExpression|Function(Declaration|Expression)|Program)$/.test(node.type)) {
      mine = new Set([...own, ...literalsIn(node)]);
    }
    if (/^Class(Declaration|Expression)$/.test(node.type)) walkClass(node);
    const targets: Node[] = [];
    if (node.type === 'AssignmentExpression') targets.push(...patternTargets(node.left as Node));
    else if (node.type === 'UpdateExpression') targets.push(node.argument as Node);
    else if (node.type === 'UnaryExpression' && node.operator === 'delete')
      targets.push(node.argument as Node);
    else if (/^For(In|Of)Statement$/.test(node.type)) targets.push(...patternTargets(node.left as Node));
    for (const target of targets) {
      if (target.type !== 'MemberExpression' || target.computed) continue;
      const object = target.object as Node;
      if (object.type === 'ThisExpression' || isOwn(object)) continue;
      if (object.type === 'Identifier' && mine.has(String(object.name))) continue;
      if (nameOf(target.property as Node) === 'length' && isOwnArray(object, mine)) continue;
      if (/^(\+\+|\+=)$/.test(String(node.operator)) && isCounters(object)) continue;
      report('foreign write', source.slice(target.start, target.end), target);
    }
    for (const child of children(node)) walk(child, mine);
  };
  walk(program as unknown as Node, new Set());
  return found;
}

/** Counts that a source adds to or reads: `….counters.name++`, and any other mention of a member of `counters`. */
export function countsIn(source: string): { name: string; use: 'add' | 'read'; line: number }[] {
  const { program } = parseSync('source.ts', source);
  const found: ReturnType<typeof countsIn> = [];
  const walk = (node: Node, use: 'add' | 'read'): void => {
    if (node.type === 'MemberExpression' && isCounters(node.object as Node)) {
      const line = source.slice(0, node.start).split('\n').length;
      found.push({ name: String(nameOf(node.property as Node)), use, line });
    }
    const added =
      node.type === 'UpdateExpression' ? node.argument : node.operator === '+=' ? node.left : undefined;
    for (const child of children(node)) walk(child, child === added ? 'add' : 'read');
  };
  walk(program as unknown as Node, 'read');
  return found;
}

/** `(this as Own<Class>)`. */
function isOwn(object: Node): boolean {
  const cast = object.type === 'ParenthesizedExpression' ? (object.expression as Node) : object;
  if (cast.type !== 'TSAsExpression' || (cast.expression as Node).type !== 'ThisExpression') return false;
  const type = cast.typeAnnotation as Node;
  return type.type === 'TSTypeReference' && (type.typeName as Node).name === 'Own';
}

/** `this.#list`, or a constant that is the same. */
function isOwnArray(object: Node, own: ReadonlySet<string>): boolean {
  if (object.type === 'Identifier') return own.has(`#${object.name}`);
  const isField = object.type === 'MemberExpression' && (object.object as Node).type === 'ThisExpression';
  return isField && (object.property as Node).type === 'PrivateIdentifier';
}

/** `counters`, `qp.counters`, … */
function isCounters(object: Node): boolean {
  if (object.type === 'Identifier') return object.name === 'counters';
  return object.type === 'MemberExpression' && nameOf(object.property as Node) === 'counters';
}

/** The members that a pattern assigns to. */
function patternTargets(node: Node): Node[] {
  switch (node.type) {
    case 'MemberExpression':
      return [node];
    case 'ArrayPattern':
      return (node.elements as (Node | null)[]).flatMap((element) =>
        element ? patternTargets(element) : [],
      );
    case 'ObjectPattern':
      return (node.properties as Node[]).flatMap((p) => patternTargets((p.value ?? p.argument) as Node));
    case 'AssignmentPattern':
      return patternTargets(node.left as Node);
    case 'RestElement':
      return patternTargets(node.argument as Node);
    default:
      return [];
  }
}

/** `return`s of a function itself, not of functions in it. */
function* returnsOf(node: Node): Generator<Node> {
  for (const child of children(node)) {
    if (/^(ArrowFunctionExpression|Function(Declaration|Expression))$/.test(child.type)) continue;
    if (child.type === 'ReturnStatement') yield child;
    else yield* returnsOf(child);
  }
}

/** Names of a function, or of the file, that are object or array literals; with `#`, those that are private fields of `this`. */
function* literalsIn(node: Node): Generator<string> {
  for (const child of children(node)) {
    if (
      /^(ArrowFunctionExpression|Function(Declaration|Expression)|Class(Declaration|Expression))$/.test(
        child.type,
      )
    ) {
      continue;
    }
    if (child.type === 'VariableDeclarator') {
      const made = unwrapped(child.init as Node | null);
      const id = child.id as Node;
      if (id.type === 'Identifier' && made) {
        if (/^(Object|Array)Expression$/.test(made.type)) yield String(id.name);
        // Marked, because only its length is the function's to write.
        if (isOwnArray(made, new Set())) yield `#${id.name}`;
      }
    }
    yield* literalsIn(child);
  }
}

function unwrapped(node: Node | null): Node | null {
  return node && /^TS(As|Satisfies)Expression$/.test(node.type) ? unwrapped(node.expression as Node) : node;
}
