/** How the messages of XRC differ (IBTA vol 1 annex A14; Linux core/cm.c `cm_format_req`, `cm_format_rep`). */
import { CmExtendedTransport, type CmFields, type CmInput, CmTransport } from '@node-roce/wire';

/** The transport services of a connection. */
export type ServiceName = 'RC' | 'UC' | 'XRC';

/** The service that a REQ asks for; undefined for one that there is none of. */
export function serviceOf(
  request: Pick<CmFields<'REQ'>, 'transportService' | 'extendedTransport'>,
  takesXrc: boolean,
): ServiceName | undefined {
  const { transportService, extendedTransport } = request;
  if (transportService === CmTransport.RC) return 'RC';
  if (transportService === CmTransport.UC) return 'UC';
  const isXrc = transportService === CmTransport.OTHER && extendedTransport === CmExtendedTransport.XRC;
  return isXrc && takesXrc ? 'XRC' : undefined;
}

/** Fields of a REQ of this service. An XRC initiator serves nothing, so it has no resources, retries or SRQ to offer. */
export function requestFields(service: ServiceName, fields: CmInput<'REQ'>): CmInput<'REQ'> {
  if (service !== 'XRC') return { ...fields, transportService: CmTransport[service] };
  return {
    ...fields,
    transportService: CmTransport.OTHER,
    extendedTransport: CmExtendedTransport.XRC,
    responderResources: 0,
    retryCount: 0,
    rnrRetryCount: 0,
    srq: false,
  };
}

/** Fields of a REP of this service. An XRC target is named in the place of an EE context, has an SRQ, and requests nothing. */
export function replyFields(service: ServiceName, fields: CmInput<'REP'>): CmInput<'REP'> {
  if (service !== 'XRC') return fields;
  const { localQpn } = fields;
  return {
    ...fields,
    localQpn: 0,
    localEecn: localQpn,
    initiatorDepth: 0,
    endToEndFlowControl: false,
    srq: true,
  };
}

/** The queue pair that a REP names. */
export const repliedQpn = (service: ServiceName, { localQpn, localEecn }: CmFields<'REP'>): number =>
  service === 'XRC' ? localEecn : localQpn;
