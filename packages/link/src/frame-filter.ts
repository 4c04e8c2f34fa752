/** Rules for frames as a program of the kernel's classic packet filter (Documentation/networking/filter.rst). */
import { type FrameMatch, type FrameRule, invalid } from '@node-roce/transport';

/** BPF_LD | BPF_ABS, by bytes loaded. */
const LOAD = { 4: 0x20, 2: 0x28, 1: 0x30 } as const;
const AND = 0x54;
const JUMP_EQUAL = 0x15;
const RETURN = 0x06;
/** Bytes of a frame that passes. */
const WHOLE = 0x4_0000;
/** Instructions that the kernel takes (BPF_MAXINSNS). */
const MAX_INSTRUCTIONS = 4096;
/** A jump goes at most so far. */
const MAX_JUMP = 255;
const MAX_OFFSET = 0xffff;

type Width = keyof typeof LOAD;

/** Words of the program: two an instruction, `code | jt << 16 | jf << 24` and `k`. Throws EINVAL for rules that make none. */
export function frameFilter(rules: readonly FrameRule[]): Uint32Array {
  const words: number[] = [];
  for (const [i, rule] of rules.entries()) appendRule(words, rule, `filter[${i}]`);
  words.push(RETURN, 0);
  if (words.length / 2 > MAX_INSTRUCTIONS)
    throw invalid('filter', `${words.length / 2} instructions`, `${MAX_INSTRUCTIONS} at most`);
  return Uint32Array.from(words);
}

/** All matches, each of which jumps behind the rule where it does not hold; then the frame passes. */
function appendRule(words: number[], rule: FrameRule, name: string): void {
  const steps = rule.flatMap((match, i) => stepsOf(match, `${name}[${i}]`));
  // Instructions of the rule that are left after each test of `steps`: what a jump out of it passes over.
  const sizes = steps.map(({ mask, whole }) => (mask === whole ? 2 : 3));
  let left = sizes.reduce((sum, size) => sum + size, 1);
  if (left > MAX_JUMP) throw invalid(name, `${rule.length} matches`, 'fewer bytes');
  for (const [i, { width, offset, value, mask, whole }] of steps.entries()) {
    left -= sizes[i];
    words.push(LOAD[width], offset);
    if (mask !== whole) words.push(AND, mask);
    words.push((JUMP_EQUAL | (left << 24)) >>> 0, value);
  }
  words.push(RETURN, WHOLE);
}

interface Step {
  width: Width;
  offset: number;
  value: number;
  mask: number;
  whole: number;
}

/** A match in loads of 4, 2 and 1 bytes. Bytes that do not count are not looked at. */
function stepsOf({ offset, value, mask }: FrameMatch, name: string): Step[] {
  if (!Number.isInteger(offset) || offset < 0 || offset > MAX_OFFSET)
    throw invalid(`${name}.offset`, `${offset}`, `0 … ${MAX_OFFSET}`);
  if (!(value instanceof Uint8Array) || value.length === 0)
    throw invalid(`${name}.value`, 'no bytes', 'a Uint8Array');
  if (mask !== undefined && !(mask instanceof Uint8Array && mask.length === value.length))
    throw invalid(`${name}.mask`, 'not as long as the value', 'a Uint8Array');
  const steps: Step[] = [];
  for (let at = 0; at < value.length; ) {
    const rest = value.length - at;
    const width: Width = rest >= 4 ? 4 : rest >= 2 ? 2 : 1;
    const number = (bytes: Uint8Array) =>
      bytes.subarray(at, at + width).reduce((sum, byte) => sum * 256 + byte, 0);
    const whole = 2 ** (8 * width) - 1;
    const bits = mask === undefined ? whole : number(mask);
    if (bits !== 0)
      steps.push({ width, offset: offset + at, value: (number(value) & bits) >>> 0, mask: bits, whole });
    at += width;
  }
  return steps;
}
