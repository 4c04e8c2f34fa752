/** Findings of a capture as sentences, each with a hint; worst first. */
import { counted, formatCount, formatDuration, formatPsn } from '../../units.ts';
import type { CaptureSummary, Connection, Finding, Message, Severity } from '../analysis.ts';
import type { ConnectionState, Direction } from '../track/direction.ts';
import type { LastFailure } from '../track/last-failure.ts';
import { captureFindings } from './capture.ts';
import { congestionFindings } from './congestion.ts';
import { finding, flowName, moment, ofSubject, type Subject } from './finding.ts';
import { groupFindings } from './group.ts';
import type { FatalNakName } from './kinds.ts';
import { retransmissions } from './recovery.ts';
import { idleLikeTimeout, reordering, stalls } from './stalls.ts';

/** Where so many packets of ten have a duplicate, a mirror shows all of them twice. */
const MIRRORED = 0.9;

const RANK: Readonly<Record<Severity, number>> = { error: 0, warning: 1, note: 2 };

export function findingsOf(
  states: readonly ConnectionState[],
  connections: readonly Connection[],
  summary: CaptureSummary,
  /** Packets of connections past those that are followed. */
  tooMany: number,
  /** Findings that no connection has. */
  others: readonly Finding[] = [],
): Finding[] {
  const findings = [...captureFindings(connections, summary, tooMany), ...others];
  const lone = states
    .filter(({ first, second }) => second === undefined && first.counts.cnps > 0)
    .map(({ first }) => first);
  states.forEach((state, i) => {
    const connection = connections[i];
    for (const direction of [state.first, state.second]) {
      if (direction === undefined) continue;
      const subject = { direction, connection, name: flowName(connection, direction.from) };
      findings.push(
        ...failures(subject),
        ...retransmissions(subject),
        ...stalls(subject),
        ...idleLikeTimeout(subject),
        ...reordering(subject),
        ...notReady(subject),
        ...losses(subject),
        ...congestionFindings(subject, lone),
      );
    }
  });
  findings.sort(
    (x, y) => RANK[x.severity] - RANK[y.severity] || y.frameCount - x.frameCount || x.start - y.start,
  );
  // Where the order of frames is not that of time, packets seem to be missing.
  const isOutOfOrder = findings.some(({ kind }) => kind === 'clock-back');
  const shown = isOutOfOrder ? findings.filter(({ kind }) => kind !== 'capture-loss') : findings;
  return groupFindings(shown, connections);
}

const NAK_HINTS: Readonly<Record<FatalNakName, string>> = {
  'invalid-request':
    'The responder refuses this operation: do the access flags of its queue pair allow it, is the receive long enough, is an atomic aligned to 8 bytes, is the path MTU of both queue pairs the same, are there enough responder resources (max_dest_rd_atomic)?',
  'remote-access-error':
    "Check the R_Key, the address range and the access rights of the remote memory region or window, and that it is of the queue pair's protection domain and still registered.",
  'remote-operational-error':
    "Look at the responder's completions: a receive that is too short or whose memory is not valid, or a queue pair in the error state.",
  'invalid-rd-request': 'The responder does not support Reliable Datagram.',
  'reserved-nak': 'A NAK code that the specification reserves: look at the firmware of the responder.',
};

const LAST_HINTS: Readonly<Record<LastFailure['failure'], string>> = {
  'rnr-retries-exceeded':
    'The receiver posts too few receives, or too late: post more, or raise rnr_retry (7 means no limit) and min_rnr_timer.',
  'retries-exceeded':
    'Does the peer get the packets (ping, UDP port 4791, PFC, path MTU), and is its queue pair in RTR or RTS with the same addresses, QPNs and PSNs?',
};

const nameOf = ({ operation, firstPsn }: Message): string => `${operation} (PSN ${formatPsn(firstPsn)})`;

/** `sent 4 times and refused with RNR NAK each time`. */
function refusals({ sends, rnrNaks }: LastFailure): string {
  const refused = rnrNaks === sends ? 'RNR NAK each time' : counted(rnrNaks, 'RNR NAK');
  return `sent ${counted(sends, 'time')} and refused with ${refused}`;
}

function failures(subject: Subject): Finding[] {
  const { direction, connection } = subject;
  const found: Finding[] = [];
  const peer = direction.peer;
  for (const nak of Object.keys(NAK_HINTS) as FatalNakName[]) {
    const events = peer?.record.events.get(`nak-${nak}`);
    if (events === undefined) continue;
    const failed = connection.messages.find(
      ({ failure, from }) => failure === nak && from === direction.from,
    );
    const what = failed === undefined ? 'a request' : nameOf(failed);
    found.push(
      finding(
        subject,
        events,
        `nak-${nak}`,
        'error',
        `${what} was refused with NAK ${words(nak)} ${moment(events.start)}; the connection ends with it`,
        NAK_HINTS[nak],
      ),
    );
  }
  const last = connection.messages.find(
    ({ failure, from }) =>
      from === direction.from && (failure === 'retries-exceeded' || failure === 'rnr-retries-exceeded'),
  );
  const lastFailure = direction.ended.failure;
  if (last === undefined || lastFailure === undefined) return found;
  const { failure, isShown } = lastFailure;
  const hint = isShown
    ? ''
    : 'The capture ends before another retry was due: the requester may have gone on. ';
  const packets = counted(last.retransmitted + last.packets, 'packet');
  const answer =
    peer === undefined ? 'has no answer in the capture, which shows one direction' : 'was never answered';
  found.push(
    ofSubject(
      subject,
      failure,
      'error',
      failure === 'rnr-retries-exceeded'
        ? `${nameOf(last)} was ${refusals(lastFailure)}; the last ${moment(last.end)}`
        : `${nameOf(last)} ${answer}: ${packets} sent for it, the last ${moment(last.end)}`,
      hint + LAST_HINTS[failure],
      {
        start: last.start,
        end: last.end,
        frames: [last.firstFrame, last.lastFrame],
        frameCount: last.retransmitted + last.packets,
      },
    ),
  );
  return found;
}

function notReady(subject: Subject): Finding[] {
  const { direction } = subject;
  const events = direction.peer?.record.events.get('rnr-nak');
  if (events === undefined) return [];
  const waits = direction.requester?.rnrWait.result();
  const waited =
    waits === undefined
      ? ''
      : `; the requester waited ${formatDuration(waits.mean * waits.count)} in total, ${formatDuration(waits.max)} at most`;
  return [
    finding(
      subject,
      events,
      'rnr',
      'warning',
      `${counted(events.count, 'RNR NAK')}, the first ${moment(events.start)}: the receiver had no receive posted${waited}`,
      'Post more receives, or earlier (an SRQ with a limit event helps); min_rnr_timer of the receiver sets the wait.',
    ),
  ];
}

function losses(subject: Subject): Finding[] {
  const { direction } = subject;
  const {
    counts,
    record: { events },
  } = direction;
  const found: Finding[] = [];
  const lost = events.get('lost');
  if (lost !== undefined) {
    found.push(
      finding(
        subject,
        lost,
        'uc-loss',
        'warning',
        `${counted(lost.count, 'PSN')} never came, the first ${moment(lost.start)}; UC retransmits nothing, so their messages are lost`,
        'Packets are lost on the way, or the capture dropped them: compare with the counters of the capture and of the NICs.',
      ),
    );
  }
  const missed = events.get('missed');
  if (missed !== undefined && counts.missedByCapture > 0) {
    found.push(
      finding(
        subject,
        { ...missed, frames: [] },
        'capture-loss',
        'note',
        `${counted(counts.missedByCapture, 'packet')} acknowledged but not in the capture, the first ${moment(missed.start)}: lost by the capture, not by the network`,
        'Capture with larger buffers (tcpdump -B), fewer bytes of each packet (as many as all headers have), or on both ends.',
      ),
    );
  }
  const bad = events.get('icrc-bad');
  if (bad !== undefined) {
    found.push(
      finding(
        subject,
        bad,
        'icrc-bad',
        'warning',
        `${counted(bad.count, 'packet')} with a wrong ICRC, the first ${moment(bad.start)}${damageText(direction)}`,
        'Damaged on the way (cables, switch memory), or changed by something that rewrites headers (NAT, IP ID), or by the capture itself.',
      ),
    );
  }
  const twice = events.get('flush-twice');
  if (twice !== undefined) {
    found.push(
      finding(
        subject,
        twice,
        'flush-covered-twice',
        'note',
        `${counted(twice.count, 'FLUSH', 'FLUSHes')} with an ICRC over BTH to RETH twice, the first ${moment(twice.start)}: rxe of Linux 6.12 makes it so, no damage`,
        'An adapter that checks ICRCs drops them; node-roce takes them unless it was opened with flushIcrc: strict.',
      ),
    );
  }
  const aimless = events.get('no-address');
  if (aimless !== undefined) {
    found.push(
      finding(
        subject,
        aimless,
        'placement-without-address',
        'note',
        `${counted(aimless.count, 'FLUSH or ATOMIC_WRITE', 'FLUSHes or ATOMIC_WRITEs')} to the address 0, the first ${moment(aimless.start)}: rxe of Linux 6.12 sends them so when it sends them again`,
        'If the first one arrived, its answer comes again; if it was lost, a responder refuses the address. Right only where a region begins at 0.',
      ),
    );
  }
  const repeated = events.get('repeated-frame');
  if (repeated !== undefined) {
    found.push(
      finding(
        subject,
        repeated,
        'repeated-frames',
        'note',
        `${counted(repeated.count, 'duplicate frame')}, the first ${moment(repeated.start)}: packets that were sent once`,
        repeated.count >= MIRRORED * direction.counts.packets
          ? 'A mirror of two ports shows every packet twice. They are counted once.'
          : 'A network that duplicates packets does this, or a mirror of a part of the traffic; receivers drop duplicates. They are counted once.',
      ),
    );
  }
  const presumed = events.get('reuse-presumed');
  const reused = events.get('reused') ?? presumed;
  if (reused !== undefined) {
    const doubt =
      presumed === undefined ? '' : ', or packets of one connection in between are not in the capture';
    found.push(
      finding(
        subject,
        reused,
        'queue-pairs-reused',
        'note',
        `queue pair numbers used again ${moment(reused.start)}, ${formatDuration(reused.sum)} after the last packet of another connection that had both${doubt}`,
        'Each has a row of its own: PSNs, retransmissions and latency of one are unrelated to those of the other.',
      ),
    );
  }
  return found;
}

/** The consequences of damage: recoveries, or none where it lies at the tap or behind it. */
function damageText({ counts, record: { recoveries }, peer }: Direction): string {
  const all = [...recoveries.kept, ...(peer?.record.recoveries.kept ?? [])];
  const caused = all.filter(({ damaged }) => damaged !== undefined).length;
  const accepted = counts.damagedAccepted;
  const parts: string[] = [];
  if (caused > 0)
    parts.push(
      `${counted(caused, 'recovery', 'recoveries')} began with such a packet, which the receiver dropped`,
    );
  if (accepted > 0)
    parts.push(`${formatCount(accepted)} acknowledged nevertheless: damaged at the tap or behind it`);
  return parts.length === 0 ? '; receivers drop them silently' : `; ${parts.join('; ')}`;
}

const words = (name: string): string => name.replaceAll('-', ' ');
