/** One line per object for console.log, in place of its internals. */
import { inspect } from 'node:util';

/** `Name { a: 1, b: 'x' }`, for a class's `[inspect.custom]`. */
export function line(name: string, facts: Readonly<Record<string, unknown>>): string {
  const shown = Object.entries(facts).filter(([, value]) => value !== undefined);
  const text = shown.map(([key, value]) => `${key}: ${typeof value === 'string' ? value : inspect(value)}`);
  return `${name} { ${text.join(', ')} }`;
}

export const hex = (value: number): string => `0x${value.toString(16)}`;

export const custom: typeof inspect.custom = inspect.custom;
