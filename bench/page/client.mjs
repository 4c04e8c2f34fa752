/** The page in the browser: a section for each row, with bars of the last run that has it, a table, and history. */
import { axisX, barX, dot, line, plot, ruleX, ruleY } from '@observablehq/plot';

const { runs, rows } = JSON.parse(document.getElementById('data').textContent);
const COLORS = Array.from({ length: 8 }, (_, i) => `var(--series-${i})`);
const BAR = 26;
const NAMES = 150;
const HISTORY_HEIGHT = 190;

/** An element with attributes; text and further elements inside. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const digits = (value) => (value >= 1000 ? Math.round(value).toLocaleString('en') : value.toPrecision(3));
const spread = ({ min, max }, text) => `${text(min)} … ${text(max)}`;
const times = (value) => `${value.toFixed(2)} ×`;

function bars({ unit, contenders }, points, width) {
  return plot({
    width,
    height: points.length * BAR + 44,
    marginLeft: NAMES,
    marginRight: 16,
    x: { label: unit, grid: true, zero: true, ticks: Math.max(2, Math.floor(width / 130)) },
    y: { domain: points.map(({ contender }) => contender), label: null, tickSize: 0 },
    color: { domain: contenders, range: COLORS },
    marks: [
      barX(points, { x: 'median', y: 'contender', fill: 'contender', insetTop: 3, insetBottom: 3 }),
      ruleY(points, { x1: 'min', x2: 'max', y: 'contender', stroke: 'var(--text)', strokeWidth: 1.5 }),
    ],
  });
}

function table({ unit, lessIsBetter }, [own, ...others]) {
  const row = (name, point, text) => [
    element('th', { scope: 'row' }, name),
    element('td', {}, text(point.median)),
    element('td', { class: 'spread' }, spread(point, text)),
  ];
  const ratio = ({ ratio }) =>
    ratio === undefined
      ? [element('td'), element('td')]
      : [
          element('td', {}, times(ratio.median)),
          element(
            'td',
            { class: 'spread' },
            spread(ratio, (v) => v.toFixed(2)),
          ),
        ];
  return element(
    'table',
    {},
    element(
      'thead',
      {},
      element(
        'tr',
        {},
        ...[
          '',
          `${unit}${lessIsBetter ? ', less is better' : ''}`,
          'spread',
          `${own.contender} is`,
          'spread',
        ].map((text) => element('th', { scope: 'col' }, text)),
      ),
    ),
    element(
      'tbody',
      {},
      ...[own, ...others].map((point) =>
        element('tr', {}, ...row(point.contender, point, digits), ...ratio(point)),
      ),
    ),
  );
}

/** Points of several runs over the runs' labels. */
function history({ contenders }, points, label, width) {
  const labels = [...new Set(points.map(({ run }) => run))]
    .sort((a, b) => a - b)
    .map((run) => runs[run].label);
  const placed = points.map((point) => ({ ...point, label: runs[point.run].label }));
  return plot({
    width,
    height: HISTORY_HEIGHT,
    marginLeft: 56,
    marginRight: 30,
    marginBottom: 44,
    x: { type: 'point', domain: labels, label: null, padding: 0.4 },
    y: { label, grid: true, zero: true, nice: true, ticks: 5 },
    color: { domain: contenders, range: COLORS },
    marks: [
      axisX({ lineWidth: Math.floor(width / labels.length / 12), anchor: 'bottom' }),
      ruleX(placed, { x: 'label', y1: 'min', y2: 'max', stroke: 'contender', strokeOpacity: 0.5 }),
      line(placed, { x: 'label', y: 'median', stroke: 'contender' }),
      dot(placed, { x: 'label', y: 'median', fill: 'contender', r: 3.5, title: 'contender' }),
    ],
  });
}

/** Key of the colours, shared by the charts of a row. */
function key(contenders) {
  const item = (name, i) =>
    element('li', {}, element('i', { style: `background: ${COLORS[i % COLORS.length]}` }), name);
  return element('ul', { class: 'key' }, ...contenders.map(item));
}

function figure(text, chart) {
  chart.setAttribute('role', 'img');
  chart.setAttribute('aria-label', text);
  return element('figure', {}, element('figcaption', {}, text), chart);
}

function section({ name, unit, points, ...rest }, width) {
  const contenders = [...new Set(points.map(({ contender }) => contender))];
  const row = { unit, contenders, ...rest };
  const last = Math.max(...points.map(({ run }) => run));
  const ofLast = points.filter(({ run }) => run === last);
  const made = element('section', {}, element('h2', {}, name));
  made.append(
    figure(`${runs[last].label}: medians and spread`, bars(row, ofLast, width)),
    table(row, ofLast),
  );
  if (points.some(({ run }) => run !== last)) {
    made.append(key(contenders));
    made.append(figure('History: medians and spread', history(row, points, unit, width)));
    const ratios = points.filter(({ ratio }) => ratio).map(({ ratio, ...point }) => ({ ...point, ...ratio }));
    if (new Set(ratios.map(({ run }) => run)).size > 1) {
      const own = points[0].contender;
      made.append(figure(`History: ${own} divided by each other`, history(row, ratios, '×', width)));
    }
  }
  return made;
}

const place = document.getElementById('rows');
let drawn;
/** Draws everything for the width that a section has now. */
function draw() {
  const columns = getComputedStyle(place).gridTemplateColumns.split(' ').map(Number.parseFloat);
  const width = Math.floor(columns[0]);
  if (width === drawn) return;
  drawn = width;
  place.replaceChildren(...rows.map((row) => section(row, width)));
}

document
  .getElementById('runs')
  .append(
    ...runs.map(({ label, conditions }) => element('li', {}, element('b', {}, label), `: ${conditions}`)),
  );
draw();
addEventListener('resize', draw);
