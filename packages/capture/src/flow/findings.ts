/** Findings of a capture as sentences, each with what to check; worst first. */
import { counted, formatDuration } from '../units.ts';
import type { CaptureSummary, Connection, Finding, RetransmitCause, Severity } from './analysis.ts';
import type { ConnectionState } from './direction.ts';
import { finding, flowName, moment, type Subject } from './finding.ts';
import type { FatalNakName } from './finding-kinds.ts';
import { captureFindings } from './findings-capture.ts';
import { congestionFindings } from './findings-congestion.ts';

const RANK: Readonly<Record<Severity, number>> = { error: 0, warning: 1, note: 2 };

export function findingsOf(
  states: readonly ConnectionState[],
  connections: readonly Connection[],
  summary: CaptureSummary,
  /** Packets of connections past those that are followed. */
  tooMany: number,
): Finding[] {
  const findings = captureFindings(connections, summary, tooMany);
  states.forEach((state, i) => {
    const connection = connections[i];
    for (const direction of [state.first, state.second]) {
      if (direction === undefined) continue;
      const subject = { direction, connection, name: flowName(connection, direction.from) };
      findings.push(
        ...failures(subject),
        ...retransmissions(subject),
        ...notReady(subject),
        ...losses(subject),
        ...congestionFindings(subject),
      );
    }
  });
  return findings.sort(
    (x, y) => RANK[x.severity] - RANK[y.severity] || y.frameCount - x.frameCount || x.start - y.start,
  );
}

const NAK_HINTS: Readonly<Record<FatalNakName, string>> = {
  'invalid-request':
    'The responder refuses this operation: do the access flags of its queue pair allow it, is the receive long enough, is an atomic aligned to 8 bytes, are there enough responder resources (max_dest_rd_atomic)?',
  'remote-access-error':
    "Check the R_Key, the address range and the access rights of the remote memory region or window, and that it is of the queue pair's protection domain and still registered.",
  'remote-operational-error':
    "Look at the responder's completions: a receive that is too short or whose memory is not valid, or a queue pair in the error state.",
  'invalid-rd-request': 'The responder does not support Reliable Datagram.',
  'reserved-nak': 'A NAK code that the specification reserves: look at the firmware of the responder.',
};

function failures(subject: Subject): Finding[] {
  const { direction, connection, name } = subject;
  const found: Finding[] = [];
  const peer = direction.peer;
  for (const nak of Object.keys(NAK_HINTS) as FatalNakName[]) {
    const events = peer?.events.get(`nak-${nak}`);
    if (events === undefined) continue;
    const failed = connection.messages.find(
      ({ failure, from }) => failure === nak && from === direction.from,
    );
    const what = failed === undefined ? 'a request' : `${failed.operation} (PSN ${failed.firstPsn})`;
    found.push(
      finding(
        subject,
        events,
        `nak-${nak}`,
        'error',
        `${name}: ${what} was refused with NAK ${words(nak)} ${moment(events.start)}; the connection ends with it`,
        NAK_HINTS[nak],
      ),
    );
  }
  const last = connection.messages.find(
    ({ failure, from }) =>
      from === direction.from && (failure === 'retries-exceeded' || failure === 'rnr-retries-exceeded'),
  );
  if (last === undefined || direction.requester === undefined) return found;
  const rnr = last.failure === 'rnr-retries-exceeded';
  found.push({
    kind: rnr ? 'rnr-retries-exceeded' : 'retries-exceeded',
    severity: 'error',
    connection: connection.id,
    text: rnr
      ? `${name}: ${last.operation} (PSN ${last.firstPsn}) was sent ${counted(last.retransmitted + 1, 'time')} and refused with RNR NAK each time; the last ${moment(last.end)}`
      : `${name}: ${last.operation} (PSN ${last.firstPsn}) was never answered: ${counted(last.retransmitted + last.packets, 'packet')} sent for it, the last ${moment(last.end)}`,
    hint: rnr
      ? 'The receiver posts too few receives, or too late: post more, or raise rnr_retry (7 is for ever) and min_rnr_timer.'
      : 'Does the peer get the packets (ping, UDP port 4791, PFC, path MTU), and is its queue pair in RTR or RTS with the same addresses, QPNs and PSNs?',
    start: last.start,
    end: last.end,
    frames: [last.firstFrame, last.lastFrame],
    frameCount: last.retransmitted + last.packets,
  });
  return found;
}

const CAUSE_WORDS: Readonly<Record<RetransmitCause, string>> = {
  timeout: 'a timeout',
  'sequence-nak': 'a sequence NAK',
  'implied-nak': 'a response that was missing',
  rnr: 'an RNR wait',
  probe: 'an early retransmission, before the ACK timeout',
  unknown: 'an unknown cause',
};

function retransmissions(subject: Subject): Finding[] {
  const { direction, name } = subject;
  const { counts, events } = direction;
  const sent = events.get('retransmission');
  if (sent === undefined) return [];
  // RNR waits are `notReady`'s.
  if (counts.retransmitted === counts.retransmitCauses.rnr) return [];
  const parts = (Object.keys(CAUSE_WORDS) as RetransmitCause[]).flatMap((cause) => {
    const began = events.get(`go-back-${cause}`);
    if (began === undefined) return [];
    const length = cause === 'timeout' ? ` of ${formatDuration(began.most)}` : '';
    return [`${began.count} after ${CAUSE_WORDS[cause]}${length} ${moment(began.start)}`];
  });
  const share = counts.requests > 0 ? (100 * counts.retransmitted) / counts.requests : 0;
  const what = counted(counts.goBacks, 'go-back-N event');
  const again = counted(counts.retransmitted, 'packet');
  const timeouts = counts.retransmitCauses.timeout > 0;
  return [
    finding(
      subject,
      sent,
      'retransmissions',
      'warning',
      `${name}: ${what}, ${again} retransmitted (${share.toFixed(share < 10 ? 1 : 0)} % of its requests)${parts.length > 0 ? `: ${parts.join(', ')}` : ''}`,
      timeouts
        ? 'Packets or ACKs are lost, and a timeout stalls the connection: look at drops in switches and NICs (PFC, ECN, buffers); a shorter ACK timeout shortens the stall.'
        : 'Packets are lost or reordered on the way: look at drops in switches and NICs (PFC, ECN, buffers), and at links with CRC errors.',
    ),
  ];
}

function notReady(subject: Subject): Finding[] {
  const { direction, connection, name } = subject;
  const events = direction.peer?.events.get('rnr-nak');
  if (events === undefined) return [];
  const waits = direction.requester?.rnrWait.result();
  const waited =
    waits === undefined
      ? ''
      : `; it waited ${formatDuration(waits.mean * waits.count)} in all, ${formatDuration(waits.max)} at most`;
  return [
    finding(
      { connection },
      events,
      'rnr',
      'warning',
      `${name}: ${counted(events.count, 'RNR NAK')}, the first ${moment(events.start)}: the receiver had no receive posted${waited}`,
      'Post more receives, or earlier (an SRQ with a limit event helps); min_rnr_timer of the receiver sets the wait.',
    ),
  ];
}

function losses(subject: Subject): Finding[] {
  const { direction, name } = subject;
  const { counts, events } = direction;
  const found: Finding[] = [];
  const gaps = events.get('gap');
  if (gaps !== undefined && direction.transport === 'UC') {
    found.push(
      finding(
        subject,
        gaps,
        'uc-loss',
        'warning',
        `${name}: ${counted(gaps.sum, 'PSN')} never came, the first ${moment(gaps.start)}; UC retransmits nothing, so their messages are lost`,
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
        `${name}: ${counted(counts.missedByCapture, 'packet')} acknowledged but not in the capture, the first ${moment(missed.start)}: lost by the capture, not by the network`,
        'Capture with larger buffers (tcpdump -B), fewer bytes of each packet (-s 128), or on both ends.',
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
        `${name}: ${counted(bad.count, 'packet')} with a wrong ICRC, the first ${moment(bad.start)}; receivers drop them silently`,
        'Damaged on the way (cables, switch memory), or changed by something that rewrites headers (NAT, IP ID), or by the capture itself.',
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
        `${name}: ${counted(repeated.count, 'frame')} shown twice, the first ${moment(repeated.start)}: the same packet, sent once`,
        'Usual for a mirror of more than one port; they are counted once.',
      ),
    );
  }
  return found;
}

const words = (name: string): string => name.replaceAll('-', ' ');
