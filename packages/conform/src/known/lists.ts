/** Known deviations of devices, by the name that `--device` takes. Each entry has a reason; some name the page that explains it. */
import type { KnownList } from '../known.ts';

const OUTSIDE_OF_WINDOW =
  'one byte past its end: wanted NAK 0x62 (access) psn+2, got ACK packet psn+2 ACK | one byte before it: wanted NAK 0x62 (access) psn+2, got ACK packet psn+2 ACK';

const UNTESTABLE: KnownList['untestable'] = {
  'KEY-11': 'rxe’s provider in libibverbs does not implement ibv_rereg_mr.',
};

/** rdma_rxe of Linux 6.1 and 6.12. */
const RXE: KnownList['deviations'] = {
  'DUP-05': {
    is: 'the rest begins with RDMA Read Response Middle psn+1',
    because:
      'docs/quirks.md, resumedReadIsMiddle: rxe treats a READ of the rest as the continuation of the first READ.',
  },
  'DUP-06': {
    is: 'whole READ again: responses none, wanted 0, 1, 2, 3',
    because:
      'docs/quirks.md, repeatedReadForgetsItsBeginning: after a READ of the rest, rxe has forgotten where the first READ began.',
  },
  'ATO-13': {
    is: 'ACK: completed with success',
    because: 'check_ack in rxe_comp.c accepts an ACK as the response to an atomic.',
  },
  'ACK-12': {
    is: 'ACK of a PSN not sent: completed 1:SUCCESS, 2:SUCCESS',
    because: 'rxe does not compare the PSN of an ACK with the last PSN that it sent.',
  },
  'CRD-01': {
    is: '8 SENDs with 0 credits',
    because: 'rxe ignores the credits of its peer.',
  },
  'RNR-02': {
    is: 'behind it: wanted silence, got ACK packet psn+0 NAK 0x60 (sequence)',
    because:
      'docs/quirks.md, sequenceNakAfterRnrNak: rxe answers the first packet after an RNR NAK with a sequence NAK.',
  },
  'RNR-19': {
    is: 'goes on with Send First psn+0',
    because:
      'rxe does not take an RNR NAK as the ACK of the packets before it, and sends the whole message again.',
  },
  'CM-30': {
    is: 'DREQ is not repeated',
    because:
      'rping exits when its connection ends, and Linux then forgets the DREQ. If the DREQ is lost, the peer keeps the connection.',
    sometimes: true,
  },
  'RNR-20': {
    is: 'RNR NAK of a PSN not sent: completed 1:SUCCESS',
    because: 'as ACK-12: rxe accepts a PSN that it has not sent, and completes the requests before this PSN.',
  },
  'ATO-14': {
    is: 'bytes in the field',
    because:
      'rxe_req.c writes the field only in a COMPARE AND SWAP. In a FETCH ADD, the field has the bytes of an earlier packet.',
    sometimes: true,
  },
  'TRC-06': {
    is: 'SENDs without credit',
    because: 'rxe ignores the credits of its peer (CRD-01).',
  },
  'OPC-01': {
    is: 'request: wanted NAK 0x61 (invalid) psn+0, got silence',
    because: 'disputed. docs/quirks.md, reservedOpcodeIsDropped.',
  },
  'ECN-01': {
    is: 'no CNP',
    because: 'rxe does not implement congestion notification.',
  },
  'RSP-02': {
    is: 'MigReq is 0',
    because: 'rxe does not set MigReq.',
  },
  'LEN-10': {
    is: 'request: wanted NAK 0x61 (invalid) psn+0, got ACK packet psn+0 NAK 0x63 (operational) | the receive: completions 1:LOC_QP_OP_ERR, wanted 1:LOC_LEN_ERR',
    because:
      'docs/quirks.md, shortReceiveIsOperationalError: rxe sends NAK 0x63, and the receive completes with LOC_QP_OP_ERR.',
  },
  'LEN-14': {
    is: 'request: wanted NAK 0x61 (invalid) psn+0, got RDMA Read Response Only psn+0 ACK',
    because: 'rxe ignores the payload of a READ request.',
  },
  'LEN-16': {
    is: 'request: wanted NAK 0x61 (invalid) psn+1, got ACK packet psn+1 NAK 0x63 (operational) | the receive: completions 1:LOC_QP_OP_ERR, wanted 1:LOC_LEN_ERR',
    because:
      'docs/quirks.md, shortReceiveIsOperationalError: rxe sends NAK 0x63, and the receive completes with LOC_QP_OP_ERR.',
  },
  'KEY-12': {
    is: OUTSIDE_OF_WINDOW,
    because:
      'docs/quirks.md, windowBoundsNotChecked: rxe checks the bounds of the region, not those of the window.',
  },
  'KEY-14': {
    is: OUTSIDE_OF_WINDOW,
    because:
      'docs/quirks.md, windowBoundsNotChecked: rxe checks the bounds of the region, not those of the window.',
  },
  'CNT-01': {
    is: 'rcvd_seq_err: fewer than there were',
    because: 'rxe_comp.c counts a sequence NAK only if the NAK also acknowledges earlier packets.',
  },
  'TMO-01': {
    is: 'repeated before T',
    because:
      'docs/quirks.md, timerRoundedDown and timerNotRestarted: rxe rounds the timer down to jiffies, and does not restart it.',
    sometimes: true,
  },
  'TMO-18': {
    is: 'repeated before T',
    because: 'docs/quirks.md, timerNotRestarted: the timer still runs from the previous request.',
    sometimes: true,
  },
  'TMO-19': {
    is: 'repeated before T',
    because: 'docs/quirks.md, timerNotRestarted: the timer still runs from the previous request.',
    sometimes: true,
  },
  'TMO-21': {
    is: 'failed earlier',
    because:
      'docs/quirks.md, timerNotRestarted: the timer still runs from the previous request, which shortens the first of the waits.',
    sometimes: true,
  },
  'TMO-06': {
    is: 'retries used up: completions none, wanted 1:RETRY_EXC_ERR',
    because: 'rxe_comp.c treats retry_cnt 7 as no limit, as it does rnr_retry 7.',
  },
  'NAK-03': {
    is: 'NAK of a PSN not sent: completed 1:SUCCESS',
    because: 'as ACK-12: rxe accepts a PSN that it has not sent, and completes the requests before this PSN.',
  },
  'RD-05': {
    is: 'ACK of a READ: completed with success',
    because: 'check_ack in rxe_comp.c accepts an ACK as the response to a READ.',
  },
  'RD-13': {
    is: 'asked again when the timer fired, or never',
    because:
      'rxe drops READ responses that arrive out of order, and repeats the READ only when its timer expires.',
  },
  'UC-03': {
    is: 'received nothing, wanted SUCCESS 16 B',
    because:
      'docs/quirks.md, messageAfterABrokenOneIsLost: rxe drops the message after a message with a gap.',
  },
  'UC-04': {
    is: 'received 17, wanted 16, 17',
    because:
      'docs/quirks.md, messageAfterABrokenOneIsLost: rxe drops the message after a message with a gap.',
  },
  'UC-05': {
    is: 'three messages: completions none, wanted 1000:SUCCESS, 1001:SUCCESS, 1002:SUCCESS',
    because: 'docs/quirks.md, deafAfterABrokenMessage: after a WRITE with a gap, rxe drops all messages.',
  },
  'UC-09': {
    is: 'the one behind it: completions none, wanted 1001:SUCCESS',
    because: 'docs/quirks.md, deafAfterABrokenMessage: after a WRITE with a gap, rxe drops all messages.',
  },
  'UD-07': {
    is: 'another Q_Key in UD Send Only psn+0',
    because: 'docs/quirks.md, topBitQkeyIsSent: rxe sends the Q_Key of the request.',
  },
  'CM-13': {
    is: '128 bytes: answered',
    because: 'Linux does not check the length of a MAD, and answers a MAD of 128 bytes.',
  },
};

export const LISTS: Readonly<Record<string, KnownList>> = {
  'rxe-6.1': {
    device: 'rdma_rxe of Linux 6.1',
    seen: 'Debian 6.1.192-3, 29 November 2026',
    deviations: {
      ...RXE,
      'LEN-03': {
        is: 'LAST: wanted NAK 0x61 (invalid) psn+1, got ACK packet psn+1 ACK',
        because: 'rxe accepts a LAST without payload. Linux 6.12 refuses it.',
      },
      'STA-07': {
        is: 'no event, wanted send queue drained',
        because:
          'when the last request is acknowledged, rxe raises no event and keeps draining: ibv_modify_qp to RTS fails with EINVAL. Linux 6.12 raises the event.',
      },
      'STA-08': {
        is: 'no event, wanted last WQE reached',
        because: 'docs/quirks.md, lastWqeReachedIsNotRaised: rxe of Linux 6.1 does not raise this event.',
      },
      'UD-04': {
        is: 'the next datagram: LOC_QP_OP_ERR, WR_FLUSH_ERR',
        because:
          'docs/quirks.md, shortReceiveIsOperationalError: a datagram that does not fit puts the queue pair into the error state.',
      },
    },
    untestable: {
      ...UNTESTABLE,
      ...Object.fromEntries(
        ['PLC-01', 'PLC-02', 'PLC-03', 'PLC-04', 'PLC-05', 'PLC-07', 'PLC-08'].map((id) => [
          id,
          'Linux 6.1 has neither FLUSH nor ATOMIC WRITE.',
        ]),
      ),
    },
  },
  'rxe-6.12': {
    device: 'rdma_rxe of Linux 6.12',
    seen: 'Debian 6.12.118-1, 29 November 2026',
    deviations: {
      ...RXE,
      'STA-07': {
        is: 'the request that waited is not sent in RTS',
        because:
          'ibv_modify_qp from SQD to RTS does not start the send queue: rxe sends a request that was posted in SQD only when another one is posted.',
      },
      'PLC-01': {
        is: 'FLUSH: wanted a READ response of no bytes psn+0, got silence | the next FLUSH: wanted a READ response of no bytes psn+1, got silence',
        because:
          'docs/quirks.md, flushIsCoveredTwice: rxe computes another ICRC for a FLUSH than the specification, and drops a FLUSH with the right one.',
      },
    },
    untestable: {
      ...UNTESTABLE,
      'PLC-03': 'rxe does not answer a FLUSH (PLC-01).',
      'PLC-08': 'rxe does not answer a FLUSH (PLC-01).',
    },
  },
  'node-roce': {
    device: 'node-roce',
    seen: '0.2.0, 29 November 2026',
    deviations: {
      'HDR-11': {
        is: 'ID 48879: wanted ACK psn+3, got silence',
        because:
          'docs/icrc.md: a UDP socket does not show the IPv4 Identification. node-roce computes it from the ICRC, and accepts only those near the last one.',
      },
      'HDR-13': {
        is: 'DF 0: wanted ACK psn+1, got silence',
        because:
          'docs/icrc.md: a UDP socket does not show the IPv4 flags. node-roce accepts no packet without DF from a source that has set DF.',
      },
      'ECN-01': {
        is: 'no CNP',
        because: 'docs/congestion.md: congestion notification is off by default.',
      },
      'TMO-01': {
        is: 'repeated before T',
        because:
          'docs/architecture.md: a tail loss probe repeats the last packet after two round trips, and uses up no retry.',
        sometimes: true,
      },
      'TMO-02': {
        is: 'more than 4 sends with retry_cnt 3',
        because:
          'docs/architecture.md: a tail loss probe repeats the last packet after two round trips, and uses up no retry.',
        sometimes: true,
      },
      'TMO-18': {
        is: 'repeated before T',
        because:
          'docs/architecture.md: a tail loss probe repeats the last packet after two round trips, and uses up no retry.',
        sometimes: true,
      },
      'CM-36': {
        is: 'a READ is retransmitted more than once with retry count 1',
        because:
          'docs/architecture.md: a tail loss probe repeats the last packet after two round trips, and uses up no retry.',
        sometimes: true,
      },
      'TMO-19': {
        is: 'repeated before T',
        because:
          'docs/architecture.md: a tail loss probe repeats the last packet after two round trips, and uses up no retry.',
        sometimes: true,
      },
    },
    untestable: {
      'CNT-01':
        'programs under roce run find no hw_counters. docs/counters.md describes the counters of node-roce.',
    },
  },
};
