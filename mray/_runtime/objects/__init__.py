"""The values of a process, and those that it borrows.

`owner` writes values into segments and knows who has a claim on them; `borrowing` is the protocol between an owner and the processes that
hold its refs; `unheard_errors` tells of errors that nobody has asked for. Tensors that stay where they were made: `tensor_transport`
between any two processes, `device_loans` for memory of GPUs, `registered_transports` for those that a program brings along.
"""
