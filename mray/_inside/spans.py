"""Spans of time, and traces of them.

====================  ==================================================================================================
Message               A value sent from a span that writes to one that reads.
RUNNING               The end of the name of a call that is not over.
Recording             The spans of one process.
Span                  One span.
Trace                 The recordings of several processes.
kinds                 The module of the kinds of spans.
messages              Return the values sent between spans.
span_buffers          The spans that this process has recorded.
spans_by_track        Return the spans of each track of each process.
spans_of              Return the spans in rows from another process.
====================  ==================================================================================================
"""

from mray._trace import kinds
from mray._trace.chrome import Message, Recording, Trace, messages, spans_by_track
from mray._trace.digest import spans_of
from mray._trace.span import RUNNING, Span, span_buffers

__all__ = ["RUNNING", "Message", "Recording", "Span", "Trace", "kinds", "messages", "span_buffers", "spans_by_track", "spans_of"]
