/** The comparison as text. */

const figure = (value) => (value >= 1000 ? Math.round(value).toLocaleString('en') : value.toPrecision(3));
const bytes = (value) => (value === undefined ? '' : value.toFixed(1));

function line(name, cells, rest) {
  return `${name.padEnd(66)}${cells.map((cell) => cell.padStart(10)).join('')}  ${rest}`;
}

export const HEADER = line('', ['base', 'head', ''], 'ratio  spread         bytes a message  verdict');

/** One row; a build that could not do it is named with the reason. */
export function rowLine({ name, unit, base, head, failed, ...row }) {
  const cells = [base ? figure(base.figure) : '—', head ? figure(head.figure) : '—', unit.padEnd(9)];
  if (base && head) {
    const range = `${row.low.toFixed(3)} … ${row.high.toFixed(3)}`;
    const allocated = `${bytes(base.bytesPerMessage)} → ${bytes(head.bytesPerMessage)}`;
    const verdict = row.verdict === 'same' ? '' : row.verdict.toUpperCase();
    return line(name, cells, `${row.ratio.toFixed(3)}  ${range}  ${allocated.padEnd(15)}  ${verdict}`);
  }
  const reasons = Object.entries(failed).map(([side, reason]) => `${side} fails: ${reason}`);
  const only = base ? 'only in base. ' : head ? 'only in head. ' : '';
  return line(name, cells, `${only}${reasons.join('; ')}`);
}

/** The result of a comparison, a line each. */
export function conclusion({ slower, faster, broken, onlyInBase }) {
  const list = (names) => names.map((name) => `  ${name}`);
  return [
    slower.length > 0 ? 'Slower beyond the spread:' : 'No row is slower beyond its spread.',
    ...list(slower),
    ...(faster.length > 0 ? ['Faster beyond the spread:', ...list(faster)] : []),
    ...(broken.length > 0 ? ['Measured in base, fails in head:', ...list(broken)] : []),
    ...(onlyInBase.length > 0 ? ['Rows of base that head does not have:', ...list(onlyInBase)] : []),
  ];
}
