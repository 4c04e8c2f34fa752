/** The graph of imports: what each file names, and circles of files. */
import { parseSync, Visitor } from 'oxc-parser';

/** Imports that are not declarations: dynamic ones, those of types in place, and CommonJS'. */
const CALL = /\b(import|require)\s*\(/;

/** The text of a string, or of a template without expressions. */
const textOf = (node) =>
  node?.type === 'TemplateLiteral' ? node.quasis.map(({ value }) => value.cooked).join() : node?.value;

/** The modules that a file names: imports, exports from, dynamic imports, types, `require`. */
export function importsOf(path, code) {
  const parsed = parseSync(path, code);
  const [error] = parsed.errors;
  if (error) throw new Error(`${path}: ${error.message}`);
  const found = parsed.module.staticImports.map(({ moduleRequest }) => moduleRequest.value);
  for (const { entries } of parsed.module.staticExports) {
    for (const { moduleRequest } of entries) if (moduleRequest) found.push(moduleRequest.value);
  }
  // The tree is made only where it is looked at, and that is slow.
  if (!CALL.test(code)) return [...new Set(found)];
  const add = (node) => typeof textOf(node) === 'string' && found.push(textOf(node));
  const addSource = ({ source }) => add(source);
  const addRequired = ({ callee, arguments: [name] }) => callee.name === 'require' && add(name);
  new Visitor({ ImportExpression: addSource, TSImportType: addSource, CallExpression: addRequired }).visit(
    parsed.program,
  );
  return [...new Set(found)];
}

/** The circles of a graph of files, each as the files in it: strongly connected components (Tarjan). */
export function circlesOf(graph) {
  const [order, low, stack, circles] = [new Map(), new Map(), [], []];
  const visit = (file) => {
    order.set(file, order.size);
    low.set(file, order.get(file));
    stack.push(file);
    for (const next of graph.get(file) ?? []) {
      if (!order.has(next)) visit(next);
      if (stack.includes(next)) low.set(file, Math.min(low.get(file), low.get(next)));
    }
    if (low.get(file) !== order.get(file)) return;
    const circle = stack.splice(stack.indexOf(file));
    if (circle.length > 1 || graph.get(file)?.includes(file)) circles.push(circle.sort());
  };
  for (const file of graph.keys()) if (!order.has(file)) visit(file);
  return circles;
}
