/** The table of results. */

const digits = (value) => (value >= 1000 ? Math.round(value).toLocaleString('en') : value.toPrecision(3));

/** One row's results as lines. */
export function lines({ name, unit, lessIsBetter, results, missing }) {
  const out = [`\n${name}`];
  for (const { contender, figure, ratio, extra } of results) {
    const spread = `${digits(figure.min)} … ${digits(figure.max)}`;
    const compared = ratio
      ? `  ${results[0].contender} is ${ratio.median.toFixed(2)} × this (${ratio.min.toFixed(2)} … ${ratio.max.toFixed(2)})`
      : '';
    out.push(
      `  ${contender.padEnd(24)} ${digits(figure.median).padStart(9)} ${unit}  [${spread}]${compared}${extra ? `  ${extra}` : ''}`,
    );
  }
  for (const { contender, reason } of missing) out.push(`  ${contender.padEnd(24)} not measured: ${reason}`);
  if (lessIsBetter) out[0] += ' (less is better)';
  return out;
}
