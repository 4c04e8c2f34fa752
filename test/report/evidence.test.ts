/** A report at first sight: the summary, why packets were retransmitted, where time was lost; on any screen and on paper. */
// @module-tag slow
import { join } from 'node:path';
import { type Analysis, analyzeCapture, renderReport } from '@node-roce/capture/node';
import { beforeAll, describe, expect, test } from 'vitest';
import { analysis, connection, finding } from '../../packages/capture/testing/analysis.ts';
import { captures, inChromium, opens, page, poll, see, write } from './suite.ts';

const review = join(captures, '../captures-review');
const report = async (folder: string, name: string) => {
  const found = await analyzeCapture(join(folder, `${name}.pcap`));
  return { found, file: write(`${name}.html`, renderReport(found)) };
};

inChromium(() => {
  describe('the report of blackhole_timeout', () => {
    let file: string;
    beforeAll(async () => {
      ({ file } = await report(captures, 'blackhole_timeout'));
    });
    opens(() => file);

    test('its plot joins the silence before an ACK timeout to the retransmission', async () => {
      await poll(() => page.locator('.plots figure').first().locator('.legend').textContent()).toContain(
        'Silence to resend',
      );
    });
  });

  describe('the report of loss10_both_mixed', () => {
    let found: Analysis;
    let file: string;
    beforeAll(async () => {
      ({ found, file } = await report(review, 'loss10_both_mixed'));
    });
    opens(() => file);

    test('states behind the verdict how much was lost, where and why', async () => {
      const summary = page.locator('main > section').nth(1);
      expect(await summary.locator('.sentences li').allTextContents()).toEqual([
        '1 connection of 2 hosts, 10 messages, 70.3 KiB of payload',
        expect.stringMatching(/^38 packets retransmitted in \d+ recoveries \(go-back-N\): /),
        expect.stringMatching(/^Packets were missing or late: /),
        'Findings: 2 warnings',
      ]);
      const causes = await summary.locator('.bars').first().locator('tr').allTextContents();
      expect(causes.length).toBe(Object.values(found.overview.causes).filter((count) => count > 0).length);
      const ids = page.locator('main > section').evaluateAll((sections) => sections.map(({ id }) => id));
      expect((await ids).slice(0, 4)).toEqual(['verdict', 'summary', 'strip', 'findings']);
    });

    test('its ladder shows missing packets, and the NAK joined to what it had resent', async () => {
      const [nak] = found.connections[0].recoveries.filter(({ cause }) => cause === 'sequence-nak');
      await see(
        page.locator('.annotation.missing text').first(),
        'PSN 1193050 = 0x12345a missing: lost or late before the tap',
      );
      expect(await page.locator('.annotation.recovery').count()).toBe(found.connections[0].recoveries.length);
      const [from, to] = await Promise.all(
        [nak!.evidence, nak!.frame].map((frame) => page.locator(`#packet-${frame}-0`).boundingBox()),
      );
      const bracket = await page.locator('.join').first().boundingBox();
      // From the row of the NAK to that of the retransmission, as far as its drawing goes.
      expect(bracket!.y).toBeGreaterThanOrEqual(from!.y);
      expect(bracket!.y + bracket!.height).toBeLessThanOrEqual(to!.y + to!.height);
    });

    test('its plots name their axes, and each kind of point has a shape of its own', async () => {
      const symbols = await page
        .locator('.plots figure')
        .first()
        .locator('label.key svg path')
        .evaluateAll((paths) =>
          paths.map((path) => `${path.getAttribute('d')} ${(path as SVGElement).style.fill}`),
        );
      expect(symbols.length).toBeGreaterThan(6);
      expect(new Set(symbols).size).toBe(symbols.length);
      const legend = await page.locator('.plots figure').first().locator('.legend').textContent();
      for (const text of ['Retransmission: sequence NAK', 'Lost or late', 'Evidence to resend'])
        expect(legend).toContain(text);
      // Where the timer of its one ACK timeout began was not seen.
      expect(legend).not.toContain('Silence to resend');
    });

    test('latency: a legend, percentiles by operation and size, the ACK round trip next to it', async () => {
      await see(
        page.locator('#latency .legend'),
        'SENDWRITEREADOtherACK round tripfirst packet to completion, log scale',
      );
      const { latencyClasses } = found.connections[0];
      const rows = await page.locator('.classes tbody th').allTextContents();
      expect(rows).toContain('RDMA_WRITE, to 64 KiB');
      expect(rows.slice(latencyClasses.length)).toEqual([
        'All messages',
        'ACK round trip (last packet to its ACK)',
        'READ or atomic request to its last response',
      ]);
    });

    test('nothing is cut off at 400 px', async () => {
      await page.setViewportSize({ width: 400, height: 800 });
      await poll(() => page.locator('.ladder-box').evaluate((box) => box.scrollWidth - box.clientWidth)).toBe(
        0,
      );
      const cut = await page
        .locator('.scroll, .classes, .facts')
        .evaluateAll((boxes) =>
          boxes
            .filter((box) => box.scrollWidth > box.clientWidth)
            .map((box) => box.getAttribute('aria-label') ?? box.className),
        );
      expect(cut).toEqual([]);
      const outside = await page.locator('.ladder text').evaluateAll((texts) =>
        texts
          .filter((text) => {
            const [box, svg] = [text.getBoundingClientRect(), text.closest('svg')!.getBoundingClientRect()];
            return box.left < svg.left - 1 || box.right > svg.right + 1;
          })
          .map((text) => text.textContent),
      );
      expect(outside).toEqual([]);
      expect(await page.locator('.annotation.recovery').first().isVisible()).toBe(true);
    });

    test('on paper: frames of findings, drawings in their own size, a ladder of one page', async () => {
      await page.emulateMedia({ media: 'print' });
      await page.setViewportSize({ width: 688, height: 1000 });
      await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
      const frames = page.locator('.finding .frames').first();
      expect(await frames.textContent()).toMatch(/^Frames91011/);
      expect(await frames.locator('button').first().isVisible()).toBe(true);
      expect(await page.locator('.finding .go').first().isVisible()).toBe(false);
      // 11 px of a label are 8 pt: nothing is scaled down.
      const scale = () =>
        page
          .locator('.ladder')
          .first()
          .evaluate((svg) => svg.getBoundingClientRect().width / Number(svg.getAttribute('width')));
      await poll(scale).toBeGreaterThan(0.98);
      const canvas = page.locator('.chart canvas').first();
      const drawn = () =>
        canvas.evaluate(
          (element: HTMLCanvasElement) =>
            (element.getBoundingClientRect().width * devicePixelRatio) / element.width,
        );
      await poll(drawn).toBeGreaterThan(0.95);
      const rows = await page
        .getByRole('option')
        .evaluateAll((all) => all.filter((row) => row.checkVisibility()).length);
      expect(rows).toBe(48);
      expect(await page.locator('.on-paper:visible').textContent()).toContain('48 of 109 packets');
    });
  });

  describe('the report of loss5_both_rc_pingpong', () => {
    let file: string;
    beforeAll(async () => {
      ({ file } = await report(captures, 'loss5_both_rc_pingpong'));
    });
    opens(() => file);

    test('marks stalls in the ladder and in the legend of the plot', async () => {
      await poll(() => page.locator('.gap.stall').count()).toBeGreaterThan(1);
      expect(await page.locator('.gap.stall').first().textContent()).toContain('ended by an ACK timeout');
      expect(await page.locator('.plots figure').first().locator('.legend').textContent()).toContain(
        'Stall 4',
      );
    });
  });

  describe('the report of corrupt_A', () => {
    let found: Analysis;
    let file: string;
    beforeAll(async () => {
      ({ found, file } = await report(captures, 'corrupt_A'));
    });
    opens(() => file);

    test('folds the findings that the verdict explains behind the others', async () => {
      const explained = found.findings.filter(({ isExplained }) => isExplained === true);
      const open = found.findings.filter(({ isExplained }) => isExplained !== true);
      expect(explained.length).toBeGreaterThan(0);
      const sentences = page.locator('.finding .sentence');
      expect(await sentences.allTextContents()).toEqual([...open, ...explained].map(({ text }) => text));
      expect(await sentences.last().isVisible()).toBe(false);
      await page.locator('.explained summary').click();
      expect(await sentences.last().isVisible()).toBe(true);
    });
  });

  describe('the report of cm_rping_refused', () => {
    let file: string;
    beforeAll(async () => {
      ({ file } = await report(captures, 'cm_rping_refused'));
    });
    opens(() => file);

    test('shows who was refused and why, though there is no connection', async () => {
      const row = page.locator('#exchanges tbody tr').first();
      expect(await row.textContent()).toContain('rejected: ');
      expect(await page.locator('.cm-messages li').allTextContents()).toEqual([
        expect.stringContaining('ConnectRequest'),
        expect.stringContaining('ConnectReject'),
      ]);
      expect(await page.locator('main > .empty').textContent()).toContain(
        'only messages of the connection manager',
      );
      await row.getByRole('button').click();
      await poll(() => page.locator('.cm-messages').count()).toBe(0);
    });
  });

  describe('the report of four hosts over time', () => {
    const ends = [
      ['10.0.0.1', '10.0.0.2'],
      ['10.0.0.1', '10.0.0.3'],
      ['10.0.0.4', '10.0.0.2'],
    ] as const;
    const SPANS = 10;
    const connections = ends.map(([from, to], i) => {
      const made = connection({
        id: i + 1,
        a: { address: from, qpn: 0x11 },
        b: { address: to, qpn: 0x12 + i },
        throughput: {
          start: 0,
          span: 1e8,
          aToB: new Array<number>(SPANS).fill(i === 1 ? 1e8 : 4e6),
          bToA: new Array<number>(SPANS).fill(0),
          againAToB: i === 2 ? [...new Array<number>(SPANS - 1).fill(0), 2e6] : [],
          againBToA: [],
        },
      });
      made.aToB.packets = 1000 * (i + 1);
      made.aToB.bytes = i === 1 ? 1e9 : 4e7;
      made.aToB.retransmitted = i === 2 ? 7 : 0;
      return made;
    });
    const found = analysis({ connections });
    found.summary.duration = 1e9;
    opens(() => write('overview.html', renderReport(found)));

    test('a strip has a row for each connection, and a click chooses the connection and the time', async () => {
      const rows = page.locator('.strip tbody tr');
      expect(await rows.count()).toBe(3);
      // Most bytes first.
      expect(await rows.first().locator('th').textContent()).toContain('10.0.0.3');
      expect(await page.locator('.strip caption').textContent()).toContain('full height 8 Gbit/s');
      const strip = rows.last().locator('svg');
      const { width } = (await strip.boundingBox())!;
      await strip.click({ position: { x: width / 2, y: 10 } });
      const name = /\d+/.exec((await rows.last().locator('button').textContent())!)![0];
      await poll(() => page.locator('#connection-title').textContent()).toMatch(
        new RegExp(`^Connection ${name}\\b`),
      );
      const from = Number(await page.getByLabel('from, in seconds').inputValue());
      expect(from).toBeGreaterThan(0.46);
      expect(from).toBeLessThan(0.49);
    });

    test('a matrix has who sent to whom, with retransmissions; a cell leads to the connection', async () => {
      const hosts = await page.locator('.matrix tbody th').allTextContents();
      expect(hosts.toSorted()).toEqual(['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4']);
      const cell = page.locator('.matrix').getByRole('button', { name: '7 again' });
      expect(await cell.textContent()).toBe('38.1 MiB 7 again');
      await cell.click();
      await poll(() => page.locator('#connection-title').textContent()).toMatch(/^Connection 3\b/);
    });

    test('goodput next to throughput where requests were retransmitted', async () => {
      const legend = page.locator('figure', { hasText: 'Throughput' }).locator('.legend');
      await page.locator('.strip').getByRole('button', { name: '#3' }).click();
      await poll(() => legend.textContent()).toContain('A → B goodput');
      await page.locator('.strip').getByRole('button', { name: '#1' }).click();
      await poll(() => legend.textContent()).not.toContain('goodput');
    });
  });

  describe('the report of a network', () => {
    const path = {
      vlan: 5,
      tunnel: 'vxlan',
      vni: 42,
      network: 1,
      classes: [{ dscp: 26, pcp: 3, ttl: 63, packets: 9 }],
      ecn: { notEct: 0, ect1: 0, ect0: 8, ce: 1 },
    } as const;
    const paths = { aToB: { ...path, classes: [...path.classes] }, bToA: undefined };
    const members = [1, 2, 3].map((id) =>
      finding({
        connection: id,
        severity: 'warning',
        text: `#${id}: 2 packets retransmitted`,
        frames: [id],
        start: id,
      }),
    );
    const grouped = finding({
      severity: 'warning',
      connection: undefined,
      subject: undefined,
      text: 'retransmissions in 3 connections; the worst, #1: 2 packets retransmitted',
      members,
    });
    const pauses = [
      {
        mac: '02:00:00:00:00:01',
        addresses: ['10.0.0.2'],
        frames: 50,
        start: 0,
        end: 1e9,
        priorities: [
          {
            priority: 3,
            pauses: 50,
            resumes: 0,
            quanta: 3_276_750,
            mostQuanta: 65_535,
            pausedTime: undefined,
          },
        ],
        firstFrames: [4],
        held: { packets: 0, stalls: 0, time: 0, longest: 0, frame: 0, waiting: undefined },
      },
    ];
    const connections = [1, 2, 3].map((id) => connection({ id, paths }));
    opens(() => write('network.html', renderReport(analysis({ connections, findings: [grouped], pauses }))));

    test('a group of findings leads to each of its connections', async () => {
      await page.locator('.members summary').click();
      expect(await page.locator('.members li').count()).toBe(3);
      await page.locator('.members').getByRole('button', { name: 'Show in connection 3' }).click();
      await poll(() => page.locator('#connection-title').textContent()).toMatch(/^Connection 3\b/);
    });

    test('pause frames by priority, and the marks of each path', async () => {
      const row = await page.locator('#pauses tbody tr').allTextContents();
      expect(row).toEqual([expect.stringMatching(/^02:00:00:00:00:0110\.0\.0\.23500.*link speed not known/)]);
      const facts = await page.locator('.facts table').first().textContent();
      for (const text of ['vxlan 42 vlan 5', 'DSCP26', 'TTL63', 'Priority (PCP)3', '8 capable, 1 CE'])
        expect(facts).toContain(text);
      expect(await page.locator('#connections tbody tr').first().textContent()).toContain(
        'vxlan 42 vlan 5, DSCP 26, TTL 63',
      );
    });
  });
});
