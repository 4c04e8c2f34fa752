/** The ladder in the page: filters, zoom, pages of packets, and the chosen packet next to it. */
import type { RefObject } from 'preact';
import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Endpoint, LadderPacket } from '../../flow/analysis.ts';
import { filterLadder, kindNames, kindOf, PACKET_KINDS, type PacketKind } from '../../ladder/kind.ts';
import { usualGap } from '../../ladder/layout.ts';
import { type LadderMarks, ladderMarks } from '../../ladder/marks.ts';
import { type LadderOptions, ladderColumns, packetId, renderLadder } from '../../ladder/render.ts';
import { formatCount, formatEndpoint, formatQp } from '../../units.ts';
import { findPacket, type ReportConnection, type ReportData } from '../data.ts';
import { PacketDetails } from './packet.tsx';
import type { Action, View } from './state.ts';
import { Pager } from './table.tsx';
import { onPrint, PAPER_WIDTH } from './theme.ts';

/** Packets drawn at a time. */
const PAGE = 250;
/** … and in one SVG. */
const CHUNK = 8;
/** Packets on paper: so many drawings (style/paper.css). */
const PAPER_ROWS = 6 * CHUNK;
/** Pixels a packet; the first two show no text. */
const ROW_HEIGHTS = [6, 12, 20, 26, 36] as const;
const USUAL_ZOOM = 3;
/** The packets that Page Up and Page Down skip. */
const LEAP = 15;
const MIN_WIDTH = 300;
/** Between the lifelines; narrower ladders name the queue pairs only. */
const MIN_FOR_ADDRESSES = 420;
const MIN_FOR_SECONDS = 500;

interface Props {
  connection: ReportConnection;
  data: ReportData;
  view: View;
  dispatch: (action: Action) => void;
  /** Reads the packets of the time that is shown. */
  load: (() => Promise<void>) | undefined;
}

export function LadderView({ connection, data, view, dispatch, load }: Props) {
  const [without, setWithout] = useState<ReadonlySet<PacketKind>>(new Set());
  const [text, setText] = useState('');
  const [zoom, setZoom] = useState(USUAL_ZOOM);
  const [page, setPage] = useState(0);
  const { ladder } = connection;
  const present = useMemo(
    () => PACKET_KINDS.filter((kind) => ladder.some((p) => kindOf(p) === kind)),
    [ladder],
  );
  const shown = useMemo(() => {
    const kinds = new Set(PACKET_KINDS.filter((kind) => !without.has(kind)));
    return filterLadder(ladder, { ...view.window, kinds, text });
  }, [ladder, view.window, without, text]);
  const place = view.packet;
  const chosen = place && findPacket(connection, place.frame, place.part);
  const at = chosen === undefined ? -1 : shown.indexOf(chosen);
  const pages = Math.max(1, Math.ceil(shown.length / PAGE));
  const current = Math.min(page, pages - 1);
  const drawn = useMemo(() => shown.slice(current * PAGE, (current + 1) * PAGE), [shown, current]);
  const gapAfter = useMemo(() => usualGap(ladder), [ladder]);
  const marks = useMemo(() => ladderMarks(connection), [connection]);

  // A packet that was chosen elsewhere brings its page.
  const followed = useRef<unknown>(undefined);
  if (followed.current !== place) {
    followed.current = place;
    const its = Math.floor(at / PAGE);
    if (at >= 0 && its !== page) setPage(its);
  }

  const choose = (packet: LadderPacket | undefined) =>
    dispatch({ type: 'packet', packet: packet && { frame: packet.frame, part: packet.part } });
  const step = (by: number) => {
    const next = at < 0 ? current * PAGE : Math.min(Math.max(at + by, 0), shown.length - 1);
    if (shown[next] !== undefined) choose(shown[next]);
  };
  const toggle = (kind: PacketKind) => {
    const next = new Set(without);
    if (!next.delete(kind)) next.add(kind);
    setWithout(next);
    setPage(0);
  };
  const { aToB, bToA } = connection;
  const all = aToB.packets + aToB.repeatedFrames + bToA.packets + bToA.repeatedFrames;
  return (
    <section id="ladder" aria-labelledby="ladder-title">
      <div class="heading">
        <h3 id="ladder-title">
          Ladder <span class="count">{countText(shown.length, ladder.length, all)}</span>
        </h3>
        {load !== undefined && ladder.length < all && <LoadButton load={load} />}
        <fieldset class="legend">
          <legend class="hidden">Packets shown</legend>
          {present.map((kind) => (
            <label key={kind} class={`key k-${kind}`}>
              <input type="checkbox" checked={!without.has(kind)} onChange={() => toggle(kind)} />
              <i class="swatch" style={`background:var(--${kind})`} />
              {kindNames[kind]}
            </label>
          ))}
        </fieldset>
        <label class="field">
          <span>Filter</span>
          <input
            type="search"
            value={text}
            placeholder="write, psn 123, #frame"
            onInput={(event) => {
              setText(event.currentTarget.value);
              setPage(0);
            }}
          />
        </label>
        <label class="field">
          <span>Zoom</span>
          <input
            type="range"
            min={0}
            max={ROW_HEIGHTS.length - 1}
            value={zoom}
            onInput={(event) => setZoom(Number(event.currentTarget.value))}
          />
        </label>
      </div>
      <div class={place === undefined ? 'ladder-pane' : 'ladder-pane with-packet'}>
        {shown.length === 0 ? (
          <p class="empty">
            {ladder.length === 0
              ? 'This report has no packets of this connection.'
              : 'No packet in this report matches.'}
          </p>
        ) : (
          <LadderBox
            {...{ connection, chosen, choose, step }}
            packets={drawn}
            before={shown[current * PAGE - 1]}
            gapAfter={gapAfter}
            marks={marks}
            rowHeight={ROW_HEIGHTS[zoom]}
            zoomBy={(by) => setZoom(Math.min(Math.max(zoom + by, 0), ROW_HEIGHTS.length - 1))}
          />
        )}
        {place !== undefined && (
          <PacketDetails
            {...{ connection, data, packet: chosen, frame: place.frame, step }}
            close={() => choose(undefined)}
          />
        )}
      </div>
      {drawn.length > PAPER_ROWS && (
        <p class="on-paper faint small">
          On paper the ladder ends after {PAPER_ROWS} of {formatCount(shown.length)} packets; the time, the
          filter and the page chosen in the browser decide which.
        </p>
      )}
      {pages > 1 && <Pager page={current} pages={pages} size={PAGE} total={shown.length} go={setPage} />}
    </section>
  );
}

/** Brings back packets that were left out. */
function LoadButton({ load }: { load: () => Promise<void> }) {
  const [state, setState] = useState<'ready' | 'reading' | 'failed'>('ready');
  const click = () => {
    setState('reading');
    load().then(
      () => setState('ready'),
      () => setState('failed'),
    );
  };
  return (
    <button type="button" disabled={state === 'reading'} onClick={click}>
      {state === 'reading'
        ? 'Reading the capture…'
        : state === 'failed'
          ? 'The capture could not be read again'
          : 'Load all packets of this time'}
    </button>
  );
}

function countText(shown: number, kept: number, all: number): string {
  if (shown === all) return formatCount(all);
  if (kept === all) return `${formatCount(shown)} of ${formatCount(all)}`;
  return `${formatCount(shown)} of ${formatCount(kept)} in this report; ${formatCount(all)} in the capture`;
}

interface BoxProps {
  connection: ReportConnection;
  packets: readonly LadderPacket[];
  before: LadderPacket | undefined;
  gapAfter: number;
  marks: LadderMarks;
  rowHeight: number;
  chosen: LadderPacket | undefined;
  choose: (packet: LadderPacket | undefined) => void;
  step: (by: number) => void;
  zoomBy: (by: number) => void;
}

function LadderBox({
  connection,
  packets,
  before,
  gapAfter,
  marks,
  rowHeight,
  chosen,
  choose,
  step,
  zoomBy,
}: BoxProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = Math.max(MIN_WIDTH, useWidth(box));
  const drawings = useMemo(
    () => drawChunks(connection, packets, { before, width, rowHeight, gapAfter, marks, embedded: true }),
    [connection, packets, before, width, rowHeight, gapAfter, marks],
  );
  const isHere = chosen !== undefined && packets.includes(chosen);
  useLayoutEffect(() => {
    const row = isHere ? document.getElementById(packetId(chosen)) : null;
    if (row === null) return;
    row.classList.add('chosen');
    row.setAttribute('aria-selected', 'true');
    showWithin(box.current!, row);
    return () => {
      row.classList.remove('chosen');
      row.removeAttribute('aria-selected');
    };
  }, [drawings, chosen, isHere]);
  const onKey = (event: KeyboardEvent) => {
    const keys: Record<string, () => void> = {
      ArrowDown: () => step(1),
      ArrowUp: () => step(-1),
      PageDown: () => step(LEAP),
      PageUp: () => step(-LEAP),
      Home: () => choose(packets[0]),
      End: () => choose(packets.at(-1)),
      Escape: () => choose(undefined),
      '+': () => zoomBy(1),
      '-': () => zoomBy(-1),
    };
    const action = keys[event.key];
    if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  };
  const onClick = (event: MouseEvent) => {
    const id = (event.target as Element).closest('[role=option]')?.id;
    if (id !== undefined) choose(packets.find((packet) => packetId(packet) === id));
  };
  return (
    <div
      ref={box}
      class="ladder-box"
      role="listbox"
      tabIndex={0}
      aria-label="Packets: arrow keys choose one, plus and minus zoom"
      aria-activedescendant={isHere ? packetId(chosen) : undefined}
      onKeyDown={onKey}
      onClick={onClick}
    >
      <Names connection={connection} width={width} />
      {drawings.map((svg, i) => (
        <div key={i} class="rows" role="presentation" dangerouslySetInnerHTML={{ __html: svg }} />
      ))}
    </div>
  );
}

/** The packets in drawings of so many rows that one fits on a sheet of paper and none is cut in two. */
function drawChunks(
  connection: ReportConnection,
  packets: readonly LadderPacket[],
  options: LadderOptions,
): string[] {
  const drawings: string[] = [];
  for (let at = 0; at < packets.length; at += CHUNK) {
    const chunk = { packets: packets.slice(at, at + CHUNK), before: packets[at - 1] ?? options.before };
    drawings.push(renderLadder(connection, { ...options, ...chunk }));
  }
  return drawings;
}

/** Brings a row into the box, without a move of the page. */
function showWithin(box: HTMLElement, row: Element): void {
  const [outer, inner] = [box.getBoundingClientRect(), row.getBoundingClientRect()];
  const names = box.firstElementChild?.clientHeight ?? 0;
  const margin = 2 * inner.height;
  if (inner.top < outer.top + names + margin) box.scrollTop -= outer.top + names + margin - inner.top;
  else if (inner.bottom > outer.bottom - margin) box.scrollTop += inner.bottom - outer.bottom + margin;
}

function Names({ connection: { a, b }, width }: { connection: ReportConnection; width: number }) {
  const { frame, time, left, right } = ladderColumns(width);
  // On paper the ladder gets another width: all of it scales.
  const part = (x: number) => `${(100 * x) / width}%`;
  const nameOf = right - left < MIN_FOR_ADDRESSES ? ({ qpn }: Endpoint) => formatQp(qpn) : formatEndpoint;
  return (
    <div class="ladder-names" style={`width:${width}px`} role="presentation">
      <span class="faint" style={`right:${part(width - frame)}`}>
        Frame
      </span>
      <span class="faint" style={`right:${part(width - time)}`}>
        {width < MIN_FOR_SECONDS ? 's' : 'Seconds'}
      </span>
      <span style={`left:${part(left)}`}>
        <b>A</b> {nameOf(a)}
      </span>
      <span style={`right:${part(width - right)}`}>
        {nameOf(b)} <b>B</b>
      </span>
    </div>
  );
}

/** The width of an element's content in whole CSS pixels, followed as it changes; 0 before it is there. */
function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const measured = () => setWidth(Math.floor(element.current!.clientWidth));
    measured();
    const observer = new ResizeObserver(measured);
    observer.observe(element.current!);
    // Scaled from the window's width the text would be too small to read on paper.
    const stop = onPrint((isPrinting) => (isPrinting ? setWidth(PAPER_WIDTH) : measured()));
    return () => {
      observer.disconnect();
      stop();
    };
  }, [element]);
  return width;
}
